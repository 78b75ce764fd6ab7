#include "braid/engine/trace/planned_times.h"

#include <algorithm>

#include "braid/backend/null/null_backend.h"
#include "braid/base/clock.h"
#include "braid/engine/absent_world.h"
#include "braid/engine/answer_seconds.h"
#include "braid/engine/cluster_kernels.h"
#include "braid/engine/describe_cluster.h"
#include "braid/engine/prompt_candidate.h"
#include "braid/engine/step_planners.h"
#include "braid/engine/trace/chunk_attention.h"
#include "braid/schedule/simulator.h"

namespace braid {
namespace {

// Of a launch of a new plan, which GPUs bind and capture before it runs: the 28 ms of a first step
// over two ranks less the planner's 6.5, by its 583 launches (docs/log/measurements.md, "A prompt
// of a new length").
constexpr double kBindSeconds = 37e-6;

std::unique_ptr<KernelCatalog> kernels_of(const RunnerConfig& config, bool one_sided) {
  return config.device.cuda ? kernels_of_gpu(config.device.first_gpu())
                            : cluster_kernels(describe_cluster(config), one_sided);
}

// Counts what a bound plan would cost a GPU.
class CountingWorld final : public AbsentWorld {
 public:
  using AbsentWorld::AbsentWorld;
  std::vector<std::unique_ptr<Executor>> bind(PlannedForward planned, bool beside) override {
    size_t most = 0;
    for (const Schedule& schedule : planned.schedules) {
      most = std::max(most, schedule.launches.size());
    }
    launches += most;
    return AbsentWorld::bind(std::move(planned), beside);
  }
  size_t launches = 0;  // of a rank, in all plans so far
};

}  // namespace

struct PlannedTimes::Impl {
  Impl(const Model& model, const RunnerConfig& c, const std::vector<SequenceMesh>& meshes,
       const SchedulerConfig& limits, std::unique_ptr<KernelCatalog> absent)
      : config(c),
        kernels(absent ? std::move(absent) : kernels_of(c, !meshes.empty() || c.ep > 1)),
        with_transfers(kernels.get()),
        rates(c.device.cuda ? answer_rates(c.profile.value()) : std::nullopt),
        decode(meshes.empty() ? forms() : std::nullopt),
        world(decode          ? static_cast<const KernelCatalog&>(*decode)
              : c.device.cuda ? with_transfers.catalog()
                              : *kernels,
              c.device.cuda),
        planner(make_step_planner(model, c, meshes, world)),
        profile(c.profile.value().under_load()),
        attention(model.config(), c.tp, limits.max_running, static_cast<int>(profile.units)),
        context(limits.room()),
        batch(c.cache.page_size) {
    world.keep_plans();
    if (!c.device.cuda || !meshes.empty()) return;
    sizes = step_sizes({.sequences = limits.max_running,
                        .tokens = limits.most_shared(),
                        .rows = limits.max_running + limits.max_scored,
                        .ranks = c.tp});
    ahead.resize(sizes.size());
  }

  std::optional<cuda::PlannedDecode> forms() const {
    if (!rates) return {};
    return std::optional<cuda::PlannedDecode>(std::in_place, with_transfers.catalog(),
                                              cuda::DecodeForm(), *rates, cuda::kUsualContext,
                                              topology_of(config).machines > 1);
  }

  // Seconds of a step by the plan that the queue takes (CudaStepQueue).
  double of_size(size_t i) {
    std::shared_ptr<const BoundForward>& made = ahead[i];
    if (!made) made = planner->plan_size(sizes[i], context);
    take(made);
    Work work = batch.work();
    work.extents.token = sizes[i].tokens;
    work.extents.row = sizes[i].rows;
    work.extents.shard = ceil_div(work.extents.token, int64_t{bound->ranks()});
    const CostModel cost(profile, ranks(bound->ranks()));
    const bool answers = decode && sizes[i].decode;
    return simulate(plan, {&work, 1}, cost, answers ? form_prices(*decode, *rates) : OwnPrices())
        .seconds;
  }

  // Seconds of a step, and of the planner and a new plan's binding.
  template <class Prepare>
  std::optional<double> prepared(const Prepare& prepare) {
    const size_t launches = world.launches;
    const double begin = steady_seconds();
    const PlannedStep step = prepare();
    if (!step) return {};
    double waits = steady_seconds() - begin;
    if (config.device.cuda) waits += static_cast<double>(world.launches - launches) * kBindSeconds;
    planning += waits;
    const double seconds = simulated(step);
    planner->record();
    return waits + seconds;
  }

  void take(const std::shared_ptr<const BoundForward>& next) {
    if (next == bound) return;
    bound = next;
    plan = {bound->programs, bound->schedules};
  }

  double simulated(const PlannedStep& step) {
    take(step.bound);
    const CostModel cost(profile, ranks(bound->ranks()));
    std::vector<Work> works(step.works.begin(), step.works.end());
    if (bound->key.kind != ContextKey::Kind::apart) return simulate(plan, works, cost).seconds;
    share(works[0], step);
    return simulate(plan, works, cost, rates ? launch_seams(*rates) : OwnPrices()).seconds;
  }

  // Keys on several ranks: each attends its part of divided sequences' keys, and its own sequences.
  // The fullest rank counts.
  void share(Work& work, const PlannedStep& step) const {
    const auto P = static_cast<int64_t>(bound->ranks());
    int64_t guests = 0, rows = 0;
    std::vector<int64_t> own(static_cast<size_t>(P));
    for (size_t s = 0; s < batch.sequences().size(); ++s) {
      const SequenceInfo& info = batch.sequences()[s];
      const int home = bound->key.own > 0 ? batch.group_of(s) : -1;
      (home < 0 ? guests : own[static_cast<size_t>(home)]) +=
          attended_keys(info.cached, info.tokens);
    }
    work.attended = work.kv_tokens = ceil_div(guests, P) + std::ranges::max(own);
    for (int r = 0; r < P; ++r) {
      rows = std::max(rows, step.inputs->rows_of(r).value_or(ceil_div(work.extents.token, P)));
    }
    work.extents.token = P * rows;
  }

  // The first `n` ranks, as far as prompts take them.
  Topology ranks(int n) const {
    const Topology all = topology_of(config);
    for (const Topology& part : parts_of(all)) {
      if (part.ranks() == n) return part;
    }
    return all;
  }

  const RunnerConfig config;
  const std::unique_ptr<KernelCatalog> kernels;
  const NullBackend with_transfers;
  const std::optional<cuda::DecodeRates> rates;     // of GPUs with known constants
  const std::optional<cuda::PlannedDecode> decode;  // of those that plan ahead
  CountingWorld world;
  const std::unique_ptr<StepPlanner> planner;
  const Profile profile;  // by which steps are priced; the planner has the configuration's
  const ChunkAttention attention;
  const int64_t context;        // of a sequence
  std::vector<StepSize> sizes;  // Runner::step_queue has their plans before the first step; or none
  std::vector<std::shared_ptr<const BoundForward>> ahead;  // [sizes], made at need
  Batch batch;
  std::vector<int32_t> ids;
  double planning = 0;                        // of the last step
  std::shared_ptr<const BoundForward> bound;  // of `plan`, the last step's
  Plan plan;
};

PlannedTimes::PlannedTimes(const Model& model, const RunnerConfig& config,
                           const SchedulerConfig& limits, std::unique_ptr<KernelCatalog> kernels)
    : impl_(std::make_unique<Impl>(model, config, meshes_of(model, config), limits,
                                   std::move(kernels))) {}

PlannedTimes::~PlannedTimes() = default;

double PlannedTimes::planning() const {
  return impl_->planning;
}

double PlannedTimes::seconds(std::span<const TimedRow> rows) {
  Batch& batch = impl_->batch;
  batch.clear();
  impl_->planning = 0;
  for (const TimedRow& row : rows) {
    impl_->ids.resize(static_cast<size_t>(row.tokens));
    batch.add(impl_->ids, row.cached, row.pages, row.scored, row.group);
  }
  batch.set_exact(std::ranges::none_of(rows, &TimedRow::approximate));
  double seconds = 0;
  if (const auto size = impl_->planner->size_for(impl_->sizes, batch)) {
    seconds = impl_->of_size(*size);
    for (const TimedRow& row : rows) {
      seconds += impl_->attention.beyond(impl_->profile, row.tokens, row.cached);
    }
    return seconds;
  }
  while (const auto first = impl_->prepared([&] { return impl_->planner->prepare_first(batch); })) {
    seconds += *first;
  }
  return seconds + impl_->prepared([&] { return impl_->planner->prepare(batch); }).value();
}

}  // namespace braid
