#include "braid/engine/attention/attention_cuda.h"

#include <algorithm>
#include <cmath>
#include <mutex>
#include <span>

#include "braid/backend/cuda/cuda_replay.h"
#include "braid/backend/cuda/phase_words.h"
#include "braid/backend/cuda/sm_partition.h"
#include "braid/backend/device_spec.h"
#include "braid/engine/attention/cuda/attention_links.h"
#include "braid/engine/attention/cuda/attention_one_gpu.h"
#include "braid/engine/attention/cuda/attention_probe.h"
#include "braid/fabric/host_barrier.h"
#include "braid/fabric/symmetric_memory.h"
#include "braid/kernels/cuda/register.h"
#include "braid/ops/segment_attention.h"
#include "braid/runtime/executor.h"

namespace braid::attention_modes {
namespace {

// A backend with inputs and outputs on the GPU alone, without host memory.
class DeviceBackend : public cuda::CudaBackend {
 public:
  using CudaBackend::CudaBackend;
  std::unique_ptr<DeviceMemory> allocate_staging(int64_t) override { return nullptr; }
};

double median_of(std::vector<double> values) {
  std::ranges::sort(values);
  return values.empty() ? 0 : values[(values.size() - 1) / 2];
}

struct GpuRank {
  GpuRank(fabric::PeerEndpoint& endpoint, const Mesh& mesh, const cuda::SmPartition* part)
      : table(cuda::device_info(endpoint.device(), part)),
        silent(cuda::device_info(endpoint.device(), part)),
        comm(endpoint, {&mesh, 1}) {
    for (cuda::KernelTable* t : {&table, &silent}) {
      cuda::add_cuda_kernels(*t);
      cuda::add_one_sided_kernels(*t, comm);
    }
    cuda::Kernel attention = table.at(ops::kSegmentAttention.kind);
    attention.bind = [this, bind = attention.bind](const cuda::LaunchArgs& args) {
      const auto probe = std::make_shared<Probe>(bind(args));
      probes.push_back(probe);
      if (args.arrived != nullptr) waits.push_back(args.arrived + cuda::PhaseWords::kWaited);
      return [probe](const cuda::LaunchContext& context) { probe->launch(context); };
    };
    table.add(ops::kSegmentAttention.kind, attention);
    cuda::drop_communication(silent);
    const cuda::Watch watch = [&endpoint] { endpoint.check(); };
    backend = std::make_unique<DeviceBackend>(table, watch, part);
    silent_backend = std::make_unique<DeviceBackend>(silent, watch, part);
  }
  // The step with timed attention launches; silent: without communication.
  cuda::KernelTable table, silent;
  cuda::OneSidedComm comm;
  std::vector<std::shared_ptr<Probe>> probes;
  std::vector<const uint32_t*> waits;  // PhaseWords: microseconds of the newest step's CTAs
  std::unique_ptr<DeviceBackend> backend, silent_backend;

  // Seconds of attention launches in the newest step, less the time in which an SM waited inside
  // for keys.
  double attention_seconds() const {
    double seconds = 0;
    for (const auto& probe : probes) seconds += probe->seconds();
    for (const uint32_t* wait : waits) {
      uint32_t us = 0;
      cuda::check_cuda(cudaMemcpy(&us, wait, sizeof(us), cudaMemcpyDeviceToHost), "waits");
      seconds -= 1e-6 * us / table.device().num_sms;
    }
    return seconds;
  }
};

// A rank's attention alone and a plain call of the same work, in alternation: the clock of a GPU at
// its power limit changes from turn to turn, and less from call to call.
class Alternation {
 public:
  explicit Alternation(const cuda::CudaBackend& backend) : backend_(backend) {}

  void run(int n, cuda::CudaReplay& computation, PlainCall& plain) {
    const cudaStream_t stream = backend_.stream(Stream::compute);
    std::vector<cuda::OwnedEvent> events;
    const auto mark = [&] {
      events.push_back(cuda::make_event(true));
      cuda::record(events.back(), stream);
    };
    mark();
    for (int i = 0; i <= n; ++i) {  // the first call waits for the host and does not count
      computation.enqueue({});
      mark();
      if (plain.there()) plain.launch(stream);
      mark();
    }
    backend_.wait(events.back().get());
    for (size_t i = 2; i < events.size(); ++i) {
      if (i % 2 == 0 && !plain.there()) continue;
      float ms = 0;
      cuda::check_cuda(cudaEventElapsedTime(&ms, events[i - 1].get(), events[i].get()), "a call");
      seconds_[i % 2].push_back(1e-3 * static_cast<double>(ms));
    }
  }
  double alone() const { return median_of(seconds_[1]); }
  double plain() const { return median_of(seconds_[0]); }

 private:
  const cuda::CudaBackend& backend_;
  std::vector<double> seconds_[2];  // plain, alone
};

// A rank's step, and the attention in the step.
struct StepTime {
  double step = 0;
  double attention = 0;
};

class Modes : public CudaModes {
 public:
  Modes(const AttentionBench& bench, const Topology& topology)
      : o_(bench),
        topology_(topology),
        fabric_(config_of(bench, topology)),
        parts_(cuda::divide_gpus(gpus_of(fabric_))),
        links_(measure_links(fabric_, topology, bench.heads, bench.head_dim)) {}

  const LinkSpeed& links() const override { return links_; }

  ModeReport measure(SpMode mode) override {
    const auto P = static_cast<size_t>(topology_.ranks());
    const SequenceMesh mesh = sequence_mesh(mode, topology_, o_.heads, o_.degrees);
    std::vector<std::unique_ptr<GpuRank>> ranks(P);
    fabric::run_ranks(fabric_, [&](fabric::PeerEndpoint& e) {
      const auto r = static_cast<size_t>(e.rank());
      ranks[r] = std::make_unique<GpuRank>(e, mesh.mesh, parts_[r].get());
    });
    std::vector<const KernelCatalog*> catalogs;
    for (const auto& rank : ranks) catalogs.push_back(&rank->table);
    const auto plan = plan_mode(o_, mode, topology_, DType::bf16, catalogs);
    ModeReport report = report_of(plan);
    report.times.resize(P);
    turns_.assign(static_cast<size_t>(o_.repetitions), std::vector<StepTime>(P));
    std::vector<Samples> samples(P);
    std::mutex mutex;
    fabric::run_ranks(fabric_, [&](fabric::PeerEndpoint& e) {
      const auto r = static_cast<size_t>(e.rank());
      run_rank(e, *ranks[r], *plan, report, samples[r], mutex);
    });
    // The slowest rank counts: the wait of a faster GPU for a slower GPU is not communication.
    std::vector<StepTime> steps;
    for (const auto& turn : turns_) {
      StepTime& slowest = steps.emplace_back();
      for (const StepTime& t : turn) {
        slowest = {std::max(slowest.step, t.step), std::max(slowest.attention, t.attention)};
      }
    }
    std::ranges::sort(steps, {}, &StepTime::step);
    const StepTime median = steps[(steps.size() - 1) / 2];
    report.seconds = median.step;
    report.compute = median.attention;
    report.exposed = median.step - report.compute;
    check(*plan, samples, report);
    return report;
  }

 private:
  // Two ranks of different machines may share a GPU and send through host memory. Four ranks may
  // not: with more streams than hardware queues, a rank waited until the deadline.
  static std::vector<int> devices_of(const AttentionBench& bench, const Topology& topology) {
    const std::vector<int> ids = parse_device(bench.device).ids;
    for (int r = 0; r < std::min<int>(topology.ranks(), std::ssize(ids)); ++r) {
      const auto before = std::span(ids).first(r);
      const auto it = std::ranges::find(before, ids[r]);
      if (it == before.end()) continue;
      const auto other = static_cast<int>(it - before.begin());
      if (std::ranges::count(before, *it) > 1) {
        fail(ErrorCode::kUnsupported,
             "--device {}: {} ranks on cuda:{} (bench attention: at most 2)", bench.device,
             std::ranges::count(ids, *it), *it);
      }
      if (topology.machine_of(r) == topology.machine_of(other)) {
        fail(ErrorCode::kInvalidArgument,
             "--device {}: ranks {} and {} of one machine share a GPU, and no link is between them "
             "to measure (--machines {}x1 makes them machines)",
             bench.device, other, r, topology.ranks());
      }
    }
    return ids;
  }

  static std::vector<int> gpus_of(fabric::PeerFabric& fabric) {
    std::vector<int> gpus;
    for (int r = 0; r < fabric.world_size(); ++r) gpus.push_back(fabric.endpoint(r).device());
    return gpus;
  }

  static fabric::PeerFabricConfig config_of(const AttentionBench& bench, const Topology& topology) {
    fabric::PeerFabricConfig config{.ranks = topology.ranks(),
                                    .devices = devices_of(bench, topology)};
    config.share_devices = !config.devices.empty();
    config.links.machines = topology.machines;
    if (bench.link_gbps > 0) {
      auto& link = topology.machines > 1 ? config.links.cluster_link : config.links.machine_link;
      link = Link{bench.link_gbps * 1e9, 5e-6};
    }
    return config;
  }

  void fill(const ModePlan& plan, int rank, Executor& executor) const {
    const SequenceAttention& a = plan.attention;
    const auto rows = [&](const char* name, Tensor tensor, const SequenceLayout& layout) {
      const TensorView view = executor.input(name);
      const int64_t width = view.shape[2] * view.shape[3];
      for (int64_t b = 0; b < a.batch; ++b) {
        int64_t row = b * view.shape[1];
        for (const SequenceRun& run : layout.ranks[rank]) {
          fill_rows(view.data + 2 * row * width, tensor, b, run.position, run.rows, 1, width,
                    nullptr);
          row += run.rows;
        }
      }
    };
    const auto joint = [&](const char* name, Tensor tensor) {
      const TensorView view = executor.input(name);
      const int64_t width = view.shape[2] * view.shape[3];
      for (int64_t b = 0; b < a.batch; ++b) {
        fill_rows(view.data + 2 * b * view.shape[1] * width, tensor, b, 0, view.shape[1], 1, width,
                  nullptr);
      }
    };
    rows("q", kQ, a.q), rows("k", kK, a.kv), rows("v", kV, a.kv);
    if (a.joint_q > 0) joint("joint_q", kJointQ);
    if (a.joint_kv > 0) joint("joint_k", kJointK), joint("joint_v", kJointV);
    cuda::check_cuda(cudaDeviceSynchronize(), "inputs");
  }

  void run_rank(fabric::PeerEndpoint& e, GpuRank& rank, const ModePlan& plan, ModeReport& report,
                Samples& samples, std::mutex& mutex) {
    const auto r = static_cast<size_t>(e.rank());
    const Program& program = plan.programs[r];
    const Schedule& schedule = plan.schedules[r];
    const auto arena =
        std::make_shared<fabric::SymmetricMemory>(e, schedule.memory.arena_bytes, "arena");
    Executor whole(program, schedule, *rank.backend, {}, arena);
    Executor alone(program, schedule, *rank.silent_backend, {}, arena);
    auto& step = dynamic_cast<cuda::CudaReplay&>(whole.replay());
    auto& computation = dynamic_cast<cuda::CudaReplay&>(alone.replay());
    PlainCall plain(plan, e.rank(), rank.table.device());
    fabric::HostBarrier meeting(e);
    const auto run_once = [&] {
      fill(plan, e.rank(), whole);
      meeting.wait();
      step.enqueue({});
      step.finish();
      meeting.wait();
    };
    cuda::check_cuda(cudaMemset(arena->data(), 0xff, static_cast<size_t>(arena->bytes())),
                     "poison");
    for (Executor* executor : {&whole, &alone}) executor->set_counts(plan.counts);
    for (cuda::CudaReplay* replay : {&step, &computation}) {
      replay->begin_loop();
      replay->finish();
    }
    e.traffic().reset();
    run_once();
    {
      std::lock_guard lock(mutex);
      for (const auto& entry : e.traffic().entries()) {
        if (entry.verb == fabric::Verb::signal) continue;
        report.bytes[static_cast<size_t>(entry.link)] += static_cast<double>(entry.bytes);
      }
    }
    samples = samples_of(plan.attention, e.rank(), whole.output(0));
    meeting.wait();  // attention by itself stores results at the other ranks, too
    computation.enqueue({});
    computation.finish();
    meeting.wait();
    for (cuda::CudaReplay* replay : {&step, &computation}) replay->prepare_loop({}, false);
    if (plain.there()) plain.launch(rank.backend->stream(Stream::compute));
    step.finish();
    for (int i = 0; i < std::min(o_.repetitions, 2); ++i) {
      run_once();
      const Samples again = samples_of(plan.attention, e.rank(), whole.output(0));
      std::lock_guard lock(mutex);
      report.repeats = report.repeats && again.rows == samples.rows;
    }
    time_all(rank, meeting, step, computation, plain, report, mutex);
    fill(plan, e.rank(), whole);
    report.times[r].resize(schedule.launches.size());
    meeting.wait();
    whole.run(plan.counts, report.times[r]);
    meeting.wait();
  }

  // The modes run in turns, for equal clocks, each turn after a step that starts all ranks. The
  // last step of a turn counts, with its attention launches.
  void time_all(GpuRank& rank, fabric::HostBarrier& meeting, cuda::CudaReplay& step,
                cuda::CudaReplay& computation, PlainCall& plain, ModeReport& report,
                std::mutex& mutex) {
    const cuda::OwnedEvent begin = cuda::make_event(true), end = cuda::make_event(true);
    const auto time = [&](const cuda::CudaBackend& backend, int n, auto&& enqueue) {
      const cudaStream_t stream = backend.stream(Stream::compute);
      meeting.wait();
      for (int i = 0; i < n; ++i) enqueue();
      cuda::record(begin, stream);
      enqueue();
      cuda::record(end, stream);
      backend.wait(end.get());
      meeting.wait();
      float ms = 0;
      cuda::check_cuda(cudaEventElapsedTime(&ms, begin.get(), end.get()), "a step's time");
      return 1e-3 * static_cast<double>(ms);
    };
    const auto run_step = [&] { step.enqueue({}); };
    // The same number on all ranks, from the time of rank 0's first step.
    const double once = time(*rank.backend, 1, run_step);
    const int r = rank.comm.endpoint().rank();
    {
      std::lock_guard lock(mutex);
      turn_ = r == 0 ? static_cast<int>(std::clamp(kTurnSeconds / once, 1., 20.)) : turn_;
    }
    meeting.wait();
    const int n = turn_;
    Alternation calls(*rank.silent_backend);
    for (auto& turn : turns_) {
      StepTime& mine = turn[r];
      mine.step = time(*rank.backend, n, run_step);
      mine.attention = rank.attention_seconds();
      meeting.wait();
      calls.run(n, computation, plain);
      meeting.wait();
    }
    std::lock_guard lock(mutex);
    report.alone = std::max(report.alone, calls.alone());
    report.plain = std::max(report.plain, calls.plain());
  }

  void check(const ModePlan& plan, const std::vector<Samples>& samples, ModeReport& report) {
    if (plan.attention.masked()) {
      report.error = NAN;
      return;
    }
    const fabric::PeerEndpoint& e = fabric_.endpoint(0);
    const cuda::DeviceScope scope(e.device());
    const Samples want = one_gpu(plan.attention, e.device());
    for (const Samples& got : samples) {
      report.error = std::max(report.error,
                              largest_difference(got, want, plan.attention.q_heads * o_.head_dim));
    }
  }

  static constexpr double kTurnSeconds = 0.1;

  const AttentionBench o_;
  const Topology topology_;
  fabric::PeerFabric fabric_;
  const std::vector<cuda::OwnedPartition> parts_;  // [ranks]
  const LinkSpeed links_;
  int turn_ = 1;
  std::vector<std::vector<StepTime>> turns_;  // [repetitions][ranks]
};

}  // namespace

std::unique_ptr<CudaModes> make_cuda_modes(const AttentionBench& bench, const Topology& topology) {
  return std::make_unique<Modes>(bench, topology);
}

}  // namespace braid::attention_modes
