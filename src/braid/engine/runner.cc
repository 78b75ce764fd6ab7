#include "braid/engine/runner.h"

#include <algorithm>
#include <cstring>

#include "braid/backend/cpu/thread_pool.h"
#include "braid/engine/cluster_kernels.h"
#include "braid/engine/describe_cluster.h"
#include "braid/engine/host_loop.h"
#include "braid/engine/job_layout.h"
#include "braid/engine/job_times.h"
#include "braid/engine/recorded_loop.h"
#include "braid/engine/requests/host_step_queue.h"
#include "braid/engine/step_planners.h"
#include "braid/engine/step_records.h"
#include "braid/kernels/cuda/decode_choice/decode_form.h"

namespace braid {

namespace {

std::unique_ptr<World> make_world(const Model& model, const RunnerConfig& c,
                                  const std::vector<SequenceMesh>& meshes,
                                  const KernelCatalog* catalog) {
  if (!c.device.cuda && c.cache.activations != DType::f32) {
    fail(ErrorCode::kUnsupported, "activations in {}: the CPU's are f32",
         name(c.cache.activations));
  }
  if (c.ep > 1 && (c.device.cuda || !meshes.empty())) {
    fail(ErrorCode::kUnsupported, "--ep {}: experts are divided over CPU ranks so far{}", c.ep,
         meshes.empty() ? ": --device cpu" : ", not with --sp");
  }
  if (c.dp < 1 || c.tp % c.dp != 0) {
    fail(ErrorCode::kInvalidArgument, "{} ranks in {} groups with sequences of their own", c.tp,
         c.dp);
  }
  if (c.dp > 1 && (c.device.cuda || !meshes.empty())) {
    fail(ErrorCode::kUnsupported, "--dp {}: sequences are dealt to CPU ranks so far{}", c.dp,
         meshes.empty() ? ": --device cpu" : ", not with --sp");
  }
  const cuda::DecodeForm decode = cuda::parse_decode(c.decode);
  if (!c.device.cuda && decode.kind != cuda::DecodeKind::automatic &&
      decode.kind != cuda::DecodeKind::apart) {
    fail(ErrorCode::kUnsupported, "--decode {}: the CPU runs each op by itself: auto or apart",
         to_string(decode));
  }
  WorldConfig config = {.ranks = c.tp,
                        .groups = c.dp,
                        .threads = c.threads,
                        .links = c.links,
                        .deadline_ms = c.deadline_ms,
                        .communication = c.communication,
                        .job = c.job,
                        .catalog = catalog,
                        .whole_weights = c.sp && !c.sp->mode,
                        .decode = c.decode};
  config.sequence = over_all(meshes, c.tp);
  if (c.ep > 1) config.sequence.push_back(Mesh({{"ep", c.tp}}));
  return c.device.cuda ? make_cuda_world(model, config, c.device) : make_cpu_world(model, config);
}

}  // namespace

struct Runner::Impl {
  Impl(const Model& m, const RunnerConfig& c, const std::vector<SequenceMesh>& meshes,
       std::optional<ClusterDescription> described)
      : model(m),
        config(c),
        cluster(std::move(described)),
        catalog(!c.device.cuda ? cluster_kernels(*cluster, !meshes.empty() || c.ep > 1) : nullptr),
        world(make_world(m, c, meshes, catalog.get())),
        rank_threads(world->fabric().ranks_here(), c.tp * c.threads),
        planner(make_step_planner(m, c, meshes, *world)),
        times(c.tp),
        experts(c.tp) {
    if (!c.job || !c.on_step) return;
    world->keep_plans();
    clocks.emplace(*c.job);
  }

  // Times of other processes' ranks come to process 0.
  void gather_times() {
    const size_t each = times.size() / static_cast<size_t>(config.job->processes());
    const size_t first = world->fabric().first_rank();
    clocks->gather(times, std::span(times).subspan(first, each));
  }

  // The counts of the last step's ranks, and of other processes' ranks at process 0.
  void count_experts() {
    const size_t ranks = last.bound->ranks(), first = world->fabric().first_rank();
    const size_t end = std::min(ranks, first + world->fabric().ranks_here());
    for (size_t r = 0; r < experts.size(); ++r) experts[r].clear();
    for (size_t r = first; r < end; ++r) experts[r] = read_expert_rows(*last.bound->executors[r]);
    if (config.job) {
      const size_t each = world->fabric().ranks_here();
      const std::vector<std::string> packed = config.job->gather(
          "rows of experts", pack_expert_rows(std::span(experts).subspan(first, each)));
      for (size_t p = 1; p < packed.size(); ++p) {
        unpack_expert_rows(packed[p], std::span(experts).subspan(p * each, each));
      }
    }
    const Executor* const any = first < ranks ? last.bound->executors[first].get() : nullptr;
    if (first > 0 || any == nullptr) return;
    add_expert_rows(any->program(), any->schedule(), std::span(experts).first(ranks), last.groups,
                    loads);
  }

  // Pages of the KV cache below `end` have memory on every rank of this process.
  void back_pages(int64_t end) {
    const int first = world->fabric().first_rank();
    for (int r = 0; r < world->fabric().ranks_here(); ++r) world->rank(first + r).back_pages(end);
  }

  // A planned step with pages in memory. A failure before this point ends nothing, except in a job:
  // the job's other processes have begun the step.
  PlannedStep ready(const std::function<PlannedStep()>& plan) {
    try {
      PlannedStep step = plan();
      back_pages(step.pages);
      return step;
    } catch (...) {
      usable = config.job == nullptr;
      throw;
    }
  }

  // Runs all steps that the batch needs first.
  void run_first(const Batch& batch) {
    while (const PlannedStep first = ready([&] { return planner->prepare_first(batch); })) {
      run(first);
      planner->record();
    }
  }

  // Runs on all ranks with a part in the step.
  void run(const PlannedStep& step) {
    try {
      rank_threads.run([&](const cpu::Team& team) {
        try {
          run_rank(team, step);
        } catch (...) {
          world->fabric().abort(rank_of(team), std::current_exception());
          throw;
        }
      });
    } catch (...) {
      world->fabric().rethrow_error();  // the cause, not a rank's later view
      throw;
    }
  }

  int rank_of(const cpu::Team& team) const { return world->fabric().first_rank() + team.index; }

  void run_rank(const cpu::Team& team, const PlannedStep& step) {
    const int rank = rank_of(team);
    const size_t r = rank;
    const int ranks = step.bound->ranks();
    // A rank that computes alone waits for nobody.
    const bool prepares = world->waits_on_device() && ranks > 1;
    if (rank >= ranks) {
      if (prepares) team.barrier();
      return;
    }
    Executor& executor = *step.bound->executors[r];
    if (config.on_step) times[r].resize(executor.schedule().launches.size());
    step.inputs->write(executor, rank);
    const auto counts = step.counts_of(rank);
    if (prepares) {
      executor.prepare({counts.begin(), counts.size()});
      team.barrier();
    }
    executor.run({counts.begin(), counts.size()}, times[r]);
  }

  // The step by which a device goes on after the last step, a token of each sequence at a time. Its
  // inputs are the prompts' last tokens.
  std::shared_ptr<BoundForward> prepare_loop(const LoopRequest& request) {
    Batch batch(request.page_size), next(request.page_size);
    for (const LoopSequence& sequence : request.sequences) {
      const auto cached = std::ssize(sequence.prompt);
      const std::span<const int32_t> pages = sequence.hold(cached + 1);
      planner->record_loop(pages, cached);
      batch.add(sequence.prompt.last(1), cached - 1, pages, 1);
      next.add(sequence.prompt.last(1), cached, pages, 1);
    }
    back_pages(next.pages_end());
    run_first(next);
    const PlannedStep step = planner->prepare(batch);
    const int ranks = step.bound->ranks();
    for (int r = 0; r < ranks; ++r) {
      Executor* const executor = step.bound->executors[r].get();
      if (executor == nullptr) continue;  // of another process
      step.inputs->write(*executor, r);
      const auto counts = step.counts_of(r);
      executor->set_counts({counts.begin(), counts.size()});
    }
    return step.bound;
  }

  const Model& model;
  const RunnerConfig config;
  const std::optional<ClusterDescription> cluster;  // ranks on CPUs, or a job
  const std::unique_ptr<KernelCatalog> catalog;     // of `cluster`
  const std::unique_ptr<World> world;
  cpu::ThreadPool rank_threads;
  const std::unique_ptr<StepPlanner> planner;
  std::vector<std::vector<LaunchTime>> times;    // [ranks, launches]
  std::vector<std::vector<ExpertRows>> experts;  // [ranks] of the last step
  std::vector<ExpertLoad> loads;                 // of all steps
  std::optional<JobTimes> clocks;                // of a job with a trace
  PlannedStep last;
  std::shared_ptr<BoundForward> looping;      // of a loop on the device
  std::unique_ptr<cpu::ThreadPool> samplers;  // of loops on the host
  int64_t rows = 0;                           // of the last step's logits
  std::vector<float> ordered;  // the logits in the batch's order, if a step reorders rows
  bool usable = true;
};

Runner::Runner(const Model& model, const RunnerConfig& config) {
  RunnerConfig c = config;
  if (c.job) {
    c.job->phase(job::Phase::planning);
    lay_out(c);
    if (c.job->process() == 0) c.job->send_record(runner_record(c));
    if (c.device.cuda) take_gpu(c);
  }
  const std::vector<SequenceMesh> meshes = meshes_of(model, c);
  std::optional<ClusterDescription> cluster;
  if (!c.device.cuda || c.job) cluster = describe_cluster(c);
  if (c.job) c.profile = cluster->profile;  // process 0's, to the last digit
  impl_ = std::make_unique<Impl>(model, c, meshes, std::move(cluster));
}

Runner::~Runner() = default;

void Runner::back_pages(int64_t pages) {
  impl_->back_pages(pages);
}

void Runner::step(const Batch& batch) {
  impl_->world->fabric().rethrow_error();
  job::Job* const job = impl_->config.job;
  if (job) {
    job->phase(impl_->last ? job::Phase::steps : job::Phase::first_step);
    if (job->process() == 0) job->send_record(step_record(batch));
  }
  impl_->usable = false;
  impl_->run_first(batch);
  impl_->last = impl_->ready([&] { return impl_->planner->prepare(batch); });
  impl_->rows = batch.extents().row;
  impl_->run(impl_->last);
  impl_->planner->record();
  impl_->usable = true;
  if (impl_->clocks) impl_->gather_times();
  if (impl_->config.count_experts) impl_->count_experts();
  if (impl_->config.on_step) impl_->config.on_step(*this);
}

bool Runner::usable() const {
  return impl_->usable;
}

TensorView Runner::logits() {
  BRAID_CHECK(impl_->last, "no step ran yet");
  const TensorView made = impl_->last.bound->executors[0]->host_output(0, impl_->rows);
  const std::span<const int32_t> order = impl_->last.inputs->row_order();
  if (order.empty()) return made;
  // The batch's order: the step computed rows of each micro-batch together.
  impl_->ordered.resize(made.shape.elems());
  const TensorView rows =
      make_view(reinterpret_cast<std::byte*>(impl_->ordered.data()), made.dtype, made.shape);
  for (size_t r = 0; r < order.size(); ++r) {
    std::memcpy(rows.row(order[r]), made.row(static_cast<int64_t>(r)),
                static_cast<size_t>(made.cols()) * sizeof(float));
  }
  return rows;
}

std::unique_ptr<DeviceMemory> Runner::allocate(int64_t bytes) {
  return impl_->world->rank(0).backend().allocate(bytes);
}

TensorView Runner::device_logits() {
  BRAID_CHECK(impl_->last, "no step ran yet");
  if (!impl_->last.inputs->row_order().empty()) return logits();  // of ranks on CPUs
  return slice_rows(impl_->last.bound->executors[0]->output(0), 0, impl_->rows);
}

void Runner::copy(const TensorView& rows, std::byte* to) {
  BRAID_CHECK(rows.contiguous());
  impl_->world->rank(0).backend().copy(to, rows.data, rows.bytes());
}

std::unique_ptr<TokenLoop> Runner::loop(LoopRequest request) {
  request.page_size = impl_->config.cache.page_size;
  request.kv_dtype = impl_->config.cache.kv_dtype;
  const auto n = std::ssize(request.sequences);
  BRAID_CHECK(n > 0 && impl_->rows == n, "a loop of {} sequences, {} rows of logits", n,
              impl_->rows);
  job::Job* const job = impl_->config.job;
  if (job) job->phase(job::Phase::steps);
  const bool masked = std::ranges::any_of(
      request.sequences, [](const LoopSequence& s) { return static_cast<bool>(s.mask); });
  const bool planned = !impl_->planner->loops_on_device();  // by the host, step by step
  // In a job process 0 makes masks, and then samples from its logits. Planned steps are asked for
  // by step().
  const RunnerConfig& config = impl_->config;
  const bool by_steps = planned && (job || masked || config.on_step || config.count_experts);
  if ((job && masked) || by_steps || !samples_on_device()) {
    // Masks come from the callers' code, which a single thread calls.
    const bool at_once = samples_on_device() && !masked && n > 1;
    if (at_once && !impl_->samplers) impl_->samplers = HostLoop::make_pool();
    return std::make_unique<HostLoop>(*this, std::move(request), logits(),
                                      at_once ? impl_->samplers.get() : nullptr);
  }
  if (planned) {
    const BoundForward& prompt = *impl_->last.bound;
    return impl_->world->loop(std::move(request), prompt, prompt, *impl_->planner);
  }
  const auto make = [&](LoopRequest r) {
    impl_->looping = impl_->prepare_loop(r);
    return impl_->world->loop(std::move(r), *impl_->last.bound, *impl_->looping, *impl_->planner);
  };
  if (!job || job->process() != 0) return make(std::move(request));
  return std::make_unique<RecordedLoop>(*job, std::move(request), make);
}

bool Runner::samples_on_device() const {
  return impl_->world->samples_on_device();
}

std::unique_ptr<StepQueue> Runner::step_queue(const StepQueueOptions& options) {
  back_pages(impl_->config.cache.pages);
  if (options.on_host || !samples_on_device()) return std::make_unique<HostStepQueue>(*this);
  const bool divides = impl_->config.sp && impl_->config.tp > 1;
  if (divides) return impl_->world->step_queue(options, *this);
  return impl_->world->step_queue(options, *impl_->planner);
}

Runner::Step Runner::last_step(int rank) const {
  BRAID_CHECK(impl_->last, "no step ran yet");
  const BoundForward& bound = *impl_->last.bound;
  if (rank >= bound.ranks()) return {};
  const size_t r = rank;
  if (const Executor* executor = bound.executors[r].get()) {
    return {executor, &executor->program(), &executor->schedule(), impl_->times[r],
            impl_->experts[r]};
  }
  if (bound.programs.empty()) return {};
  return {nullptr, &bound.programs[r], &bound.schedules[r], impl_->times[r], impl_->experts[r]};
}

std::span<const Work> Runner::last_works() const {
  return impl_->last.works_of(0);
}

std::span<const ExpertLoad> Runner::expert_loads() const {
  return impl_->loads;
}

std::optional<Approximation> Runner::approximation() const {
  return impl_->planner->approximation();
}

std::optional<Approximation> Runner::last_approximation() const {
  return impl_->planner->last_approximation();
}

const ForwardPlanner& Runner::planner() const {
  return impl_->planner->forward_planner();
}

ClusterDescription Runner::cluster() const {
  if (impl_->config.device.cuda || impl_->config.links.any_emulated()) {
    fail(ErrorCode::kUnsupported,
         "only ranks on CPUs, between real links, have a description for braid plan --cluster");
  }
  ClusterDescription cluster = *impl_->cluster;
  cluster.model = identity(impl_->model);
  return cluster;
}

std::vector<std::string> Runner::explain() const {
  std::vector<std::string> lines = impl_->planner->explain();
  for (std::string& line : impl_->world->explain()) lines.push_back(std::move(line));
  std::ranges::move(impl_->world->rank(0).backend().catalog().explain(), std::back_inserter(lines));
  if (impl_->last) {
    const std::string device = impl_->last.bound->executors[0]->replay().describe();
    if (!device.empty()) lines.push_back("the last plan: " + device);
  }
  return lines;
}

}  // namespace braid
