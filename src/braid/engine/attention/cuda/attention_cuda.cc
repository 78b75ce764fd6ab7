#include "braid/engine/attention/attention_cuda.h"

#include <algorithm>
#include <cmath>
#include <mutex>
#include <span>

#include "braid/backend/cuda/cuda_replay.h"
#include "braid/backend/cuda/launch_words.h"
#include "braid/backend/cuda/sm_partition.h"
#include "braid/backend/device_spec.h"
#include "braid/base/fnv.h"
#include "braid/engine/attention/attention_job.h"
#include "braid/engine/attention/cuda/attention_fabric.h"
#include "braid/engine/attention/cuda/attention_links.h"
#include "braid/engine/attention/cuda/attention_one_gpu.h"
#include "braid/engine/attention/cuda/attention_probe.h"
#include "braid/engine/cuda/gpu_fabric.h"
#include "braid/engine/job_times.h"
#include "braid/engine/timed_step.h"
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

struct GpuRank {
  GpuRank(fabric::DeviceEndpoint& endpoint, const Mesh& mesh, const cuda::SmPartition* part)
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
      if (args.phases() != nullptr) waits.push_back(args.phases() + cuda::LaunchWords::kWaited);
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
  std::vector<const uint32_t*> waits;  // LaunchWords: microseconds of the newest step's CTAs
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
  double alone() const { return median(seconds_[1]); }
  double plain() const { return median(seconds_[0]); }

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
        fabric_(make_fabric(bench, topology)),
        parts_(cuda::divide_gpus(gpus_of(*fabric_))),
        links_(measure_links(bench.job, *fabric_, topology, bench.heads, bench.head_dim)) {}

  const LinkSpeed& links() const override { return links_; }

  ModeReport measure(SpMode mode) override {
    const size_t P = topology_.ranks();
    const SequenceMesh mesh = sequence_mesh(mode, topology_, o_.heads, o_.degrees);
    std::vector<std::unique_ptr<GpuRank>> ranks(P);
    const size_t first = fabric_->first_rank();
    on_gpus(*fabric_, [&](fabric::DeviceEndpoint& e) {
      const size_t r = e.rank();
      ranks[r] = std::make_unique<GpuRank>(e, mesh.mesh, parts_[r - first].get());
    });
    // GPUs of other processes have the same kernels.
    std::vector<const KernelCatalog*> catalogs;
    for (const auto& rank : ranks) catalogs.push_back(&(rank ? rank : ranks[first])->table);
    const auto plan = plan_mode(o_, mode, topology_, DType::bf16, catalogs);
    if (o_.job) agree_on_plan(*o_.job, *plan);
    ModeReport report = report_of(plan);
    report.times.resize(P);
    turns_.assign(o_.repetitions, std::vector<StepTime>(P));
    std::vector<Samples> samples(P);
    std::mutex mutex;
    on_gpus(*fabric_, [&](fabric::DeviceEndpoint& e) {
      const size_t r = e.rank();
      run_rank(e, *ranks[r], *plan, report, samples[r], mutex);
    });
    if (o_.job) gather_ranks(report, samples);
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
  static std::vector<int> gpus_of(fabric::Fabric& fabric) {
    std::vector<int> gpus;
    for (int i = 0; i < fabric.ranks_here(); ++i) {
      gpus.push_back(device_endpoint(fabric, fabric.first_rank() + i).device());
    }
    return gpus;
  }

  // What ranks of other processes have measured; at process 0.
  void gather_ranks(ModeReport& report, std::vector<Samples>& samples) {
    const int rank = fabric_->first_rank();
    std::vector<double> mine = {report.alone,    report.plain,    report.repeats ? 1. : 0.,
                                report.bytes[0], report.bytes[1], report.bytes[2]};
    for (const auto& turn : turns_) {
      mine.insert(mine.end(), {turn[rank].step, turn[rank].attention});
    }
    const auto all = gather(o_.job, "a mode's times", mine);
    for (size_t p = 1; p < all.size(); ++p) {
      const double* n = all[p].data();
      report.alone = std::max(report.alone, n[0]);
      report.plain = std::max(report.plain, n[1]);
      report.repeats = report.repeats && n[2] > 0;
      for (size_t link = 0; link < 3; ++link) report.bytes[link] += n[3 + link];
      for (size_t i = 0; i < turns_.size(); ++i) turns_[i][p] = {n[6 + 2 * i], n[7 + 2 * i]};
    }
    gather_samples(*o_.job, samples);
    const JobTimes::Times times = report.times[rank];
    JobTimes(*o_.job).gather(report.times, {&times, 1});
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

  void run_rank(fabric::DeviceEndpoint& e, GpuRank& rank, const ModePlan& plan, ModeReport& report,
                Samples& samples, std::mutex& mutex) {
    const size_t r = e.rank();
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
    cuda::check_cuda(cudaMemset(arena->data(), 0xff, arena->bytes()), "poison");
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
        report.bytes[entry.link] += static_cast<double>(entry.bytes);
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
    const auto wanted = static_cast<int>(std::clamp(kTurnSeconds / once, 1., 20.));
    if (r == 0) turn_ = wanted;
    meeting.wait();
    if (o_.job) turn_ = std::stoi(o_.job->broadcast("steps of a turn", std::to_string(wanted)));
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
    if (fabric_->first_rank() > 0) return;
    const int device = device_endpoint(*fabric_, 0).device();
    const cuda::DeviceScope scope(device);
    const Samples want = one_gpu(plan.attention, device);
    Fnv bits;
    for (const Samples& got : samples) {
      for (const uint16_t value : got.rows) bits.add(int64_t{value});
      report.error = std::max(report.error,
                              largest_difference(got, want, plan.attention.q_heads * o_.head_dim));
    }
    report.bits = bits.value();
  }

  static constexpr double kTurnSeconds = 0.1;

  const AttentionBench o_;
  const Topology topology_;
  const std::unique_ptr<fabric::Fabric> fabric_;
  const std::vector<cuda::OwnedPartition> parts_;  // [ranks of this process]
  const LinkSpeed links_;
  int turn_ = 1;
  std::vector<std::vector<StepTime>> turns_;  // [repetitions][ranks]
};

}  // namespace

std::unique_ptr<CudaModes> make_cuda_modes(const AttentionBench& bench, const Topology& topology) {
  return std::make_unique<Modes>(bench, topology);
}

}  // namespace braid::attention_modes
