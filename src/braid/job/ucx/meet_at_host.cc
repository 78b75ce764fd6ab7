#include "braid/job/ucx/meet_at_host.h"

#include <cstdlib>
#include <thread>

#include "braid/base/error.h"
#include "braid/fabric/ucx/resolve.h"
#include "braid/job/host_checks.h"
#include "braid/job/packing.h"
#include "braid/job/ucx/greeting.h"
#include "braid/job/ucx/member_record.h"

namespace braid::job {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kTry{1000};

// A hello's beginning, before the record itself.
std::string hello(const Launch& launch, const std::string& mine) {
  return Packer().add(launch.processes).add(mine).bytes();
}

std::string record_of(const std::string& hello) {
  Unpacker fields(hello);
  fields.number();
  return fields.text();
}

std::string missing(const std::map<int, std::string>& there, int processes) {
  std::string text;
  for (int p = 1; p < processes; ++p) {
    if (!there.contains(p)) text += fmt::format("{}{}", text.empty() ? "" : ", ", p);
  }
  return text;
}

Greeting greeting_of(const Launch& launch, const std::string& mine) {
  const MemberRecord record = MemberRecord::read(mine);
  return {.process = launch.process, .host = record.host, .libraries = record.libraries};
}

std::vector<std::string> receive_all(const Launch& launch, const std::string& mine,
                                     fabric::UcxWorker& worker, Control& control, Hellos& hellos,
                                     milliseconds deadline) {
  Greeter greeter(launch.host, launch.port);
  Greeting greeting = greeting_of(launch, mine);
  greeting.port = worker.listen(launch.host);
  greeter.answer(greeting, [&] { control.ring(); });
  const auto all_there = [&] {
    return !hellos.conflict().empty() || !greeter.refusal().empty() ||
           static_cast<int>(hellos.count()) == launch.processes - 1;
  };
  const bool met = control.wait_until(all_there, deadline, "the other processes");
  if (const std::string refusal = greeter.refusal(); !refusal.empty()) {
    throw Error(ErrorCode::kInvalidArgument, refusal);
  }
  if (const std::string conflict = hellos.conflict(); !conflict.empty()) {
    throw Error(ErrorCode::kInvalidArgument, conflict);
  }
  const std::map<int, std::string> there = hellos.take();
  if (!met) {
    fail(ErrorCode::kDeadline,
         "waited {:.3g} s at {} port {} for {} processes, of which these did not come: {}",
         std::chrono::duration<double>(deadline).count(), launch.host, launch.port,
         launch.processes, missing(there, launch.processes));
  }
  std::vector<std::string> all = {mine};
  for (const auto& [process, bytes] : there) {
    const int64_t processes = Unpacker(bytes).number();
    if (processes != launch.processes) {
      fail(ErrorCode::kInvalidArgument,
           "process 0 was told of {} processes, process {} of {}: all need the same size",
           launch.processes, process, processes);
    }
    all.push_back(record_of(bytes));
  }
  return all;
}

// False where process 0 is not there yet.
bool knock_at(const Launch& launch, const std::string& mine, Control& control,
              Clock::duration deadline) {
  const Greeting own = greeting_of(launch, mine);
  const std::optional<Greeting> first =
      greet(launch.host, launch.port, own, std::chrono::duration_cast<milliseconds>(deadline));
  if (!first) return false;
  if (const std::string refusal = difference(*first, own); !refusal.empty()) {
    throw Error(ErrorCode::kInvalidArgument, refusal);
  }
  return control.knock(launch.host, first->port, hello(launch, mine), deadline);
}

}  // namespace

void Hellos::add(int process, std::string bytes) {
  std::lock_guard lock(mutex_);
  const auto [it, added] = all_.try_emplace(process, bytes);
  if (added || it->second == bytes) return;
  conflict_ =
      fmt::format("two processes say that they are process {}: each needs its own number", process);
}

size_t Hellos::count() {
  std::lock_guard lock(mutex_);
  return all_.size();
}

std::map<int, std::string> Hellos::take() {
  std::lock_guard lock(mutex_);
  return all_;
}

std::string Hellos::conflict() {
  std::lock_guard lock(mutex_);
  return conflict_;
}

std::vector<std::string> meet_at_host(
    const Launch& launch, const std::string& mine, fabric::UcxWorker& worker, Control& control,
    Hellos& hellos, const std::function<void(int process, const std::string& record)>& connect,
    milliseconds deadline) {
  std::vector<std::string> all;
  if (launch.process == 0) {
    all = receive_all(launch, mine, worker, control, hellos, deadline);
    Packer table;
    for (const std::string& record : all) table.add(record);
    for (int p = 1; p < launch.processes; ++p) {
      connect(p, all[static_cast<size_t>(p)]);
      control.send(p, Note::table, 0, table.bytes());
    }
    return all;
  }
  const Clock::time_point end = Clock::now() + deadline;
  const auto left = [&] { return end - Clock::now(); };
  while (!knock_at(launch, mine, control, std::min<Clock::duration>(left(), kTry))) {
    if (left() < milliseconds(0)) {
      fail(ErrorCode::kDeadline,
           "process {} found nobody at {} port {} within {:.3g} s: process 0 is not there, or "
           "cannot be reached by {}{}",
           launch.process, launch.host, launch.port,
           std::chrono::duration<double>(deadline).count(),
           describe(fabric::resolve(launch.host, launch.port)),
           chosen_net_devices(std::getenv("UCX_NET_DEVICES"), net_devices()));
    }
    std::this_thread::sleep_for(milliseconds(20));
  }
  // Process 0 waits for the others as long; this process came later than it.
  Unpacker table(control.wait(0, Note::table, 0, deadline + milliseconds(1000),
                              "the addresses of all processes"));
  while (!table.at_end()) all.push_back(table.text());
  connect(0, all.at(0));
  for (int p = 1; p < launch.processes; ++p) {
    if (p != launch.process) connect(p, all.at(static_cast<size_t>(p)));
  }
  return all;
}

}  // namespace braid::job
