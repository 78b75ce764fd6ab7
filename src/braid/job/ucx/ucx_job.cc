#include "braid/job/ucx/ucx_job.h"

#include <ucp/api/ucp.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "braid/fabric/ucx/ucx_fabric.h"
#include "braid/job/host_checks.h"
#include "braid/job/meeting.h"
#include "braid/job/orphan_segments.h"
#include "braid/job/packing.h"
#include "braid/job/ucx/member_record.h"
#include "braid/job/ucx/share_memory.h"

namespace braid::job {
namespace {

constexpr std::chrono::minutes kPatience{10};
constexpr int64_t kRecordsUnderWay = 2;

// Processes of the same space know each other by their numbers.
std::string process_space() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  std::error_code none;
  return boot + " " + std::filesystem::read_symlink("/proc/self/ns/pid", none).string();
}

ErrorCode code_of(const std::exception_ptr& error, std::string& text) {
  try {
    std::rethrow_exception(error);
  } catch (const Error& e) {
    text = e.what();
    return e.code();
  } catch (const std::bad_alloc&) {
    text = "out of memory";
    return ErrorCode::kResource;
  } catch (const std::exception& e) {
    text = e.what();
  } catch (...) {
    text = "an exception of unknown type";
  }
  return ErrorCode::kAborted;
}

}  // namespace

UcxJob::UcxJob(const JobConfig& config) : config_(config), launch_(config.launch) {
  Monitor::block_term();
  remove_orphan_segments("/dev/shm", std::chrono::seconds(30));  // of a job killed as a whole
  for (int p = 0; p < kMaxProcesses; ++p) {
    phases_.emplace_back(Phase::start);
    done_records_.emplace_back(0);
  }
  if (const char* devices = std::getenv("UCX_NET_DEVICES")) {
    require_net_devices(devices, net_devices());
  }
  try {
    worker_.emplace([this](int process, const std::string& why) { lost(process, why); });
  } catch (const Error& error) {
    throw Error(error.code(), error.what() + small_shared_memory());
  }
  control_.emplace(
      *worker_, launch_.process, error_,
      [this](int from, Note note, std::string_view bytes) { noted(from, note, bytes); });
  meet();
  monitor_.emplace(Monitor::Config{
      .process = process(),
      .processes = processes(),
      .pids = pids_here_,
      .timeout = config_.timeout,
      .grace = config_.grace,
      .give_sign =
          [this](int to) {
            control_->send(to, Note::phase, 0,
                           Packer().add(static_cast<int64_t>(phase_.load())).bytes());
          },
      .on_failure = [this](int process,
                           const std::string& why) { end_by(failure_of(process, why)); },
      .failed = [this] { return error_.is_set(); },
      .end = [this] { end_process(); },
      .on_term =
          [this] {
            fail(
                std::make_exception_ptr(Error(ErrorCode::kAborted, "SIGTERM: it was told to end")));
          }});
  watching_ = &*monitor_;
}

UcxJob::~UcxJob() {
  // Messages that say why this process ends are on their way first.
  if (error_.is_set()) usleep(50'000);
  {
    std::lock_guard lock(worker_->mutex());  // no message is being noted
    watching_ = nullptr;
  }
  monitor_.reset();
  control_.reset();
  worker_.reset();
  if (error_.is_set()) remove_orphan_segments();
}

void UcxJob::meet() {
  const std::string mine = MemberRecord{.host = host_name(),
                                        .pid = getpid(),
                                        .space = process_space(),
                                        .address = worker_->address(),
                                        .libraries = job_libraries()}
                               .bytes();
  std::vector<std::string> records;
  if (launch_.source == LaunchSource::pmix) {
    records = meet_by_pmix(launch_, mine, config_.timeout);
    require_same_libraries(records);
    for (int p = 0; p < launch_.processes; ++p) {
      if (p != launch_.process) connect(p, records[static_cast<size_t>(p)]);
    }
  } else {
    const auto connect_to = [this](int p, const std::string& record) { connect(p, record); };
    try {
      records =
          meet_at_host(launch_, mine, *worker_, *control_, hellos_, connect_to, config_.timeout);
    } catch (const Error& error) {
      tell_who_came(error);
      throw;
    }
  }
  for (const std::string& bytes : records) {
    const MemberRecord record = MemberRecord::read(bytes);
    pids_here_.push_back(record.space == process_space() ? record.pid : 0);
    members_.push_back({.host = record.host, .pid = record.pid});
  }
}

// Process 0 refuses the job: who came need not wait for a table.
void UcxJob::tell_who_came(const Error& error) {
  for (const auto& [process, bytes] : hellos_.take()) {
    Unpacker hello(bytes);
    hello.number();
    try {
      connect(process, hello.text());
    } catch (const Error&) {
      // Not to be reached: the process waits in vain for its table.
    }
  }
  end_by({.process = 0, .code = error.code(), .text = error.what()});
  usleep(50'000);
}

void UcxJob::connect(int process, const std::string& record) {
  try {
    worker_->connect(process, MemberRecord::read(record).address);
  } catch (const Error& error) {
    const char* const chosen = std::getenv("UCX_NET_DEVICES");
    throw Error(error.code(), error.what() + chosen_net_devices(chosen, net_devices()));
  }
}

void UcxJob::noted(int from, Note note, std::string_view bytes) {
  if (from < 0 || from >= kMaxProcesses) return;
  if (Monitor* monitor = watching_; monitor && from < processes()) {
    monitor->saw(from);
    if (note == Note::bye) monitor->leaves(from);
  }
  Unpacker fields{std::string(bytes)};
  switch (note) {
    case Note::hello:
      return hellos_.add(from, std::string(bytes));
    case Note::phase:
      phases_[static_cast<size_t>(from)] = static_cast<Phase>(fields.number());
      return;
    case Note::record_done:
      done_records_[static_cast<size_t>(from)] = fields.number();
      return;
    case Note::error: {
      Failure failure;
      failure.process = static_cast<int>(fields.number());
      failure.rank = static_cast<int>(fields.number());
      failure.phase = static_cast<Phase>(fields.number());
      failure.code = static_cast<ErrorCode>(fields.number());
      failure.text = fields.text();
      return end_by(failure);
    }
    default:
      return;
  }
}

std::vector<std::string> UcxJob::gather(std::string_view what, std::string_view value) {
  const int64_t sequence = collectives_++;
  if (process() != 0) {
    control_->send(0, Note::collective, sequence, Packer().add(what).add(value).bytes());
    return {};
  }
  std::vector<std::string> values = {std::string(value)};
  for (int p = 1; p < processes(); ++p) {
    Unpacker fields(
        control_->wait(p, Note::collective, sequence, kPatience, fmt::format("'{}'", what)));
    if (const std::string theirs = fields.text(); theirs != what) {
      braid::fail(ErrorCode::kInvalidArgument, "{} is at '{}', {} at '{}': different commands?",
                  name(0), what, name(p), theirs);
    }
    values.push_back(fields.text());
  }
  return values;
}

std::string UcxJob::broadcast(std::string_view what, std::string_view value) {
  const int64_t sequence = collectives_++;
  if (process() != 0) {
    return control_->wait(0, Note::collective, sequence, kPatience, fmt::format("'{}'", what));
  }
  for (int p = 1; p < processes(); ++p) control_->send(p, Note::collective, sequence, value);
  return std::string(value);
}

void UcxJob::finish() {
  phase(Phase::drain);
  barrier("the end of the job");
  for (int p = 0; p < processes(); ++p) {
    if (p != process()) control_->send(p, Note::bye, 0, "");
  }
  // Until the others have said so too, their closing would look like a loss.
  barrier("the last word");
  worker_->expect_ends();
}

void UcxJob::send_record(std::string_view record) {
  const int64_t sequence = sent_records_++;
  for (int p = 1; p < processes(); ++p) {
    const auto& done = done_records_[static_cast<size_t>(p)];
    if (!control_->wait_until([&] { return done >= sequence - kRecordsUnderWay; }, kPatience,
                              "a step")) {
      braid::fail(ErrorCode::kDeadline, "waited {} s for {} to end a step",
                  std::chrono::seconds(kPatience).count(), name(p));
    }
    control_->send(p, Note::record, sequence, record);
  }
}

std::string UcxJob::next_record() {
  const int64_t done = asked_records_++;
  if (done > 0) control_->send(0, Note::record_done, 0, Packer().add(done).bytes());
  // A chat lasts as long as its user thinks: process 0 lives as long as its signs come.
  return control_->wait(0, Note::record, done, std::chrono::hours(24 * 365), "the next step");
}

void UcxJob::phase(Phase phase) {
  if (phase_.exchange(phase) == phase) return;
  for (int p = 0; p < processes(); ++p) {
    if (p == process()) continue;
    control_->send(p, Note::phase, 0, Packer().add(static_cast<int64_t>(phase)).bytes());
  }
}

void UcxJob::fail(std::exception_ptr error) {
  fail(process() * ranks_per_process_, error);
}

void UcxJob::fail(int rank, std::exception_ptr error) {
  Failure failure{.process = process(), .rank = rank, .phase = phase_};
  failure.code = code_of(error, failure.text);
  {
    std::lock_guard lock(mutex_);
    if (failure_) return;
    error_.set(rank, error);  // as it is, for rethrow_error()
  }
  end_by(failure);
}

void UcxJob::lost(int process, const std::string& why) {
  if (Monitor* monitor = watching_) monitor->lost(process, why);
}

UcxJob::Failure UcxJob::failure_of(int process, const std::string& why) const {
  return {.process = process,
          .rank = process * ranks_per_process_,
          .phase = phases_[static_cast<size_t>(process)],
          .code = ErrorCode::kAborted,
          .text = why};
}

void UcxJob::end_by(const Failure& failure) {
  {
    std::lock_guard lock(mutex_);
    if (failure_) return;
    failure_ = failure;
    error_.set(failure.rank, std::make_exception_ptr(Error(failure.code, failure.text)));
    if (wake_fabric_) wake_fabric_();
  }
  control_->ring();
  const std::string told = Packer()
                               .add(failure.process)
                               .add(failure.rank)
                               .add(static_cast<int64_t>(failure.phase))
                               .add(static_cast<int64_t>(failure.code))
                               .add(failure.text)
                               .bytes();
  for (int p = 0; p < launch_.processes; ++p) {
    if (p != process()) control_->send(p, Note::error, 0, told);
  }
}

std::string UcxJob::last_words(const std::string& own) const {
  std::lock_guard lock(mutex_);
  if (!failure_ || failure_->process == process())
    return fmt::format("{}: {}", name(process()), own);
  return fmt::format("{}: ended in {}, since {} failed in {}: {}", name(process()),
                     to_string(phase_.load()), name(failure_->process), to_string(failure_->phase),
                     failure_->text);
}

bool UcxJob::failed_here() const {
  std::lock_guard lock(mutex_);
  return failure_ && failure_->process == process();
}

void UcxJob::end_process() {
  if (!said_.exchange(true)) {
    std::string own = "did not end by itself";
    {
      std::lock_guard lock(mutex_);
      if (failure_) own = failure_->text;
    }
    const std::string line = last_words(own);
    if (config_.say) {
      config_.say(line);
    } else {
      std::fprintf(stderr, "braid: %s\n", line.c_str());
    }
  }
  remove_orphan_segments();
  _exit(1);
}

std::unique_ptr<fabric::Fabric> UcxJob::make_fabric(const JobFabric& config) {
  fabric::UcxFabricConfig c{.ranks = config.ranks,
                            .processes = processes(),
                            .process = process(),
                            .generation = ++fabrics_,
                            .deadline = config.deadline};
  if (config.ranks < 1 || config.ranks % processes() != 0) {
    braid::fail(ErrorCode::kInvalidArgument,
                "{} ranks in a job of {} processes: wanted as many, or the same number in each",
                config.ranks, processes());
  }
  ranks_per_process_ = config.ranks / processes();
  for (int r = 0; r < config.ranks; ++r) {
    if (config.machines > 0) {
      c.machines.push_back(r / (config.ranks / config.machines));
      continue;
    }
    const std::string& host = members_[static_cast<size_t>(r / ranks_per_process_)].host;
    int machine = 0;
    while (members_[static_cast<size_t>(machine)].host != host) ++machine;
    c.machines.push_back(machine);
  }
  const auto here =
      std::ranges::count(members_, members_[static_cast<size_t>(process())].host, &Member::host);
  c.threads_on_host = static_cast<int>(here) * ranks_per_process_ * config.threads_per_rank;
  c.on_abort = [this](int rank, std::exception_ptr error) { fail(rank, error); };
  c.on_close = [this] { set_fabric({}); };
  auto made = std::make_unique<fabric::UcxFabric>(
      std::move(c), share_memory(*this, *worker_, ranks_per_process_), *worker_, error_);
  set_fabric([fabric = made.get()] { fabric->wake(); });
  barrier("symmetric memory");  // nobody sends before all listen
  return made;
}

void UcxJob::set_fabric(std::function<void()> wake) {
  std::lock_guard lock(mutex_);
  wake_fabric_ = std::move(wake);
}

std::string UcxJob::transport(int process) {
  return process == this->process() ? "self" : worker_->transports(process);
}

std::unique_ptr<Job> start_job(const JobConfig& config) {
  return std::make_unique<UcxJob>(config);
}

std::string job_libraries() {
  unsigned major = 0, minor = 0, patch = 0;
  ucp_get_version(&major, &minor, &patch);
  const std::string pmix = pmix_version();
  return fmt::format("UCX {}.{}.{}, {}", major, minor, patch,
                     pmix.empty() ? "no PMIx (Debian's libpmix-dev)" : "PMIx " + pmix);
}

}  // namespace braid::job
