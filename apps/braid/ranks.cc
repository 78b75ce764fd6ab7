#include <fmt/format.h>
#include <sched.h>
#include <sys/statvfs.h>

#include <memory>
#include <optional>

#include "braid/backend/cpu/thread_pool.h"
#include "braid/base/clock.h"
#include "braid/commands.h"
#include "braid/engine/gpu_identity.h"
#include "braid/engine/job_layout.h"
#include "braid/engine/world.h"
#include "braid/fabric/fabric.h"
#include "braid/job/host_checks.h"
#include "braid/job/near_cards.h"
#include "braid/job/packing.h"
#include "braid/job_options.h"
#include "braid/text_io.h"

namespace braid::app {
namespace {

constexpr int64_t kMessage = 8, kBlock = 1 << 20;
constexpr int kPings = 300, kBlocks = 24, kWarm = 20;
constexpr double kSmallShm = 256e6;  // bytes

// A process' facts about its place.
struct Place {
  std::string host, cores, transport;
  std::string device;  // "cpu", "cuda:1 NVIDIA H100 80GB HBM3"
  std::string far;     // far_card()
  int64_t usable_cores = 0, shm_bytes = 0, rdma_cards = 0, lockable = -1;
};

// "0-3,8".
std::string core_list() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return "?";
  std::string text;
  for (int begin = 0; begin < CPU_SETSIZE; ++begin) {
    if (!CPU_ISSET(begin, &set)) continue;
    int end = begin;
    while (end + 1 < CPU_SETSIZE && CPU_ISSET(end + 1, &set)) ++end;
    text += fmt::format("{}{}", text.empty() ? "" : ",", begin);
    if (end > begin) text += fmt::format("-{}", end);
    begin = end;
  }
  return text;
}

// The GPU that --device cuda gives this process; nothing where there is none.
std::optional<int> own_gpu(const job::Job& job) {
  const auto& members = job.members();
  const auto self = members.begin() + job.process();
  const auto local = std::count_if(
      members.begin(), self, [&](const job::Member& other) { return other.host == self->host; });
  const DeviceSpec any{.cuda = true};
  try {
    return choose_gpu(
        {job.name(job.process()), job.process(), static_cast<int>(local), usable_gpus(), any});
  } catch (const Error&) {
    return {};
  }
}

std::string place_here(job::Job& job) {
  struct statvfs shm {};
  const int64_t shm_bytes =
      statvfs("/dev/shm", &shm) == 0 ? static_cast<int64_t>(shm.f_bavail * shm.f_frsize) : 0;
  const std::vector<job::Card> cards = job::rdma_cards();
  // What carries bytes to the next process stands for all.
  const std::string transport = job.transport((job.process() + 1) % job.processes());
  std::string device = "cpu", far;
  if (const std::optional<int> gpu = own_gpu(job)) {
    const GpuIdentity identity = gpu_identity(*gpu);
    device = fmt::format("cuda:{} {}", *gpu, identity.name);
    far = job::far_card(job::pci_place(identity.pci), transport, cards);
  }
  return job::Packer()
      .add(job::host_name())
      .add(core_list())
      .add(transport)
      .add(device)
      .add(far)
      .add(int64_t{cpu::usable_cores()})
      .add(shm_bytes)
      .add(std::ssize(cards))
      .add(job::lockable_bytes())
      .bytes();
}

Place read_place(const std::string& bytes) {
  job::Unpacker fields(bytes);
  Place place{.host = fields.text(), .cores = fields.text(), .transport = fields.text()};
  place.device = fields.text();
  place.far = fields.text();
  place.usable_cores = fields.number();
  place.shm_bytes = fields.number();
  place.rdma_cards = fields.number();
  place.lockable = fields.number();
  return place;
}

// Seconds for a put with signal, one way, and bytes per second for large puts, between two ranks.
struct PairSpeed {
  double latency = 0, bandwidth = 0;
};

// Called by both ranks of the pair; the first rank's measurement counts.
class PairProbe {
 public:
  explicit PairProbe(fabric::Endpoint& endpoint)
      : endpoint_(endpoint),
        data_(endpoint.allocate<std::byte>(kBlock, "ranks/data")),
        signals_(endpoint.allocate<fabric::Signal>(1, "ranks/signals")),
        tag_(endpoint.tag("ranks")),
        source_(kBlock) {}

  PairSpeed measure(int first, int second) {
    const int me = endpoint_.rank(), peer = me == first ? second : first;
    const bool leads = me == first;
    PairSpeed speed;
    double start = 0;
    for (int i = -kWarm; i < kPings; ++i) {
      if (i == 0) start = steady_seconds();
      if (leads) send(peer, kMessage);
      await(peer);
      if (!leads) send(peer, kMessage);
    }
    speed.latency = (steady_seconds() - start) / kPings / 2;
    for (int i = -2; i < kBlocks; ++i) {
      if (i == 0) start = steady_seconds();
      if (leads) send(peer, kBlock);
      if (!leads) await(peer);
    }
    if (leads) await(peer);
    if (!leads) send(peer, kMessage);
    speed.bandwidth = kBlocks * static_cast<double>(kBlock) / (steady_seconds() - start);
    return speed;
  }

 private:
  void send(int peer, int64_t bytes) {
    fabric::Transfer transfer =
        endpoint_.put_async(data_.at(), peer, source_.data(), {.row_bytes = bytes}, tag_);
    endpoint_.signal(signals_.at(), peer, fabric::SignalOp::add, 1, tag_);
    transfer.wait();
  }
  void await(int peer) { endpoint_.wait(signals_.at(), ++received_, {.tag = tag_, .from = peer}); }

  fabric::Endpoint& endpoint_;
  fabric::SymBuf<std::byte> data_;
  fabric::SymBuf<fabric::Signal> signals_;
  const fabric::Tag tag_;
  std::vector<std::byte> source_;
  uint64_t received_ = 0;
};

std::vector<std::string> warnings_of(const std::vector<Place>& places) {
  std::vector<std::string> lines;
  for (size_t p = 0; p < places.size(); ++p) {
    const Place& place = places[p];
    if (place.rdma_cards > 0 && place.transport.starts_with("tcp")) {
      lines.push_back(
          fmt::format("rank {} on {}: bytes go by TCP, though there are {} RDMA cards: "
                      "see UCX_TLS, UCX_NET_DEVICES",
                      p, place.host, place.rdma_cards));
    }
    if (!place.far.empty()) {
      lines.push_back(
          fmt::format("rank {} on {}: {} is {}", p, place.host, place.device, place.far));
    }
    if (const std::string small = job::small_memlock(place.lockable, place.rdma_cards);
        !small.empty()) {
      lines.push_back(fmt::format("rank {} on {}: {}", p, place.host, small));
    }
    const bool shares = std::ranges::any_of(places, [&](const Place& other) {
      return &other != &place && other.host == place.host && other.cores == place.cores;
    });
    const auto here = std::ranges::count(places, place.host, &Place::host);
    if (shares && place.usable_cores < here) {
      lines.push_back(
          fmt::format("rank {} on {}: core{} {} serve{} other ranks, too: mpirun "
                      "--bind-to none, or fewer ranks",
                      p, place.host, place.usable_cores == 1 ? "" : "s", place.cores,
                      place.usable_cores == 1 ? "s" : ""));
    }
    const bool first = std::ranges::find(places, place.host, &Place::host) - places.begin() ==
                       static_cast<int64_t>(p);
    if (first && here > 1 && static_cast<double>(place.shm_bytes) < kSmallShm) {
      lines.push_back(
          fmt::format("{}: /dev/shm has {:.0f} MB free: shared memory between ranks "
                      "may not fit (docker run --shm-size)",
                      place.host, static_cast<double>(place.shm_bytes) * 1e-6));
    }
    if (p > 0 && places[p - 1].host != place.host && !first) {
      lines.push_back(
          fmt::format("rank {} on {}: ranks are not grouped by host: mpirun --map-by "
                      "slot, srun --distribution=block",
                      p, place.host));
    }
  }
  return lines;
}

void ranks(job::Job* job) {
  if (job == nullptr) {
    fail(ErrorCode::kInvalidArgument,
         "one process, which has nobody to talk to: wanted several, as by mpirun -n 4 braid ranks");
  }
  const int n = job->processes();
  const std::vector<std::string> gathered = job->gather("places", place_here(*job));
  std::vector<Place> places;
  for (const std::string& bytes : gathered) places.push_back(read_place(bytes));
  const std::unique_ptr<fabric::Fabric> fabric = job->make_fabric({.ranks = n});
  PairProbe probe(fabric->endpoint(job->process()));
  job->phase(job::Phase::steps);
  std::string table;
  size_t width = 6;
  for (const Place& place : places) width = std::max(width, place.device.size());
  for (const Place& place : places) {
    table += fmt::format("{:4}  {:20} {:{}}  {:18} {}\n", &place - places.data(), place.host,
                         place.device, width, place.cores, place.transport);
  }
  if (job->process() == 0)
    print(fmt::format("rank  host                 {:{}}  cores              transport\n{}",
                      "device", width, table));
  if (job->process() == 0) print("\npair      latency us      GB/s\n");
  for (int a = 0; a < n; ++a) {
    for (int b = a + 1; b < n; ++b) {
      PairSpeed speed;
      if (job->process() == a || job->process() == b) speed = probe.measure(a, b);
      const std::string mine = fmt::format("{} {}", speed.latency, speed.bandwidth);
      const std::vector<std::string> all = job->gather("speed of a pair", mine);
      if (job->process() == 0) {
        double latency = 0, bandwidth = 0;
        std::sscanf(all[static_cast<size_t>(a)].c_str(), "%lf %lf", &latency, &bandwidth);
        print(fmt::format("{:3} {:3} {:13.2f} {:10.2f}\n", a, b, latency * 1e6, bandwidth * 1e-9));
      }
      job->barrier("the next pair");
    }
  }
  for (const std::string& line : warnings_of(places)) print("warning: " + line + "\n");
}

}  // namespace

void add_ranks(CLI::App& app) {
  auto* command = app.add_subcommand(
      "ranks",
      "Shows the processes of a job: hosts, cores, transports, and the speed of each pair");
  const auto options = std::make_shared<JobOptions>();
  add_job(*command, *options);
  command->footer("Examples:\n  mpirun -n 4 --bind-to none braid ranks");
  command->callback([options] { run_in_job(*options, ranks); });
}

}  // namespace braid::app
