#include "braid/engine/trace/planned_times.h"

#include <algorithm>

#include "braid/backend/null/null_backend.h"
#include "braid/base/clock.h"
#include "braid/engine/absent_world.h"
#include "braid/engine/cluster_kernels.h"
#include "braid/engine/describe_cluster.h"
#include "braid/engine/prompt_candidate.h"
#include "braid/engine/step_planners.h"
#include "braid/engine/trace/chunk_attention.h"
#include "braid/kernels/cuda/decode_choice/decode_rates.h"
#include "braid/schedule/simulator.h"

namespace braid {
namespace {

std::unique_ptr<KernelCatalog> kernels_of(const RunnerConfig& config, bool one_sided) {
  return config.device.cuda ? kernels_of_gpu(config.device.first_gpu())
                            : cluster_kernels(describe_cluster(config), one_sided);
}

}  // namespace

struct PlannedTimes::Impl {
  Impl(const Model& model, const RunnerConfig& c, const std::vector<SequenceMesh>& meshes,
       int64_t sequences)
      : config(c),
        kernels(kernels_of(c, !meshes.empty() || c.ep > 1)),
        with_transfers(kernels.get()),
        world(c.device.cuda ? with_transfers.catalog() : *kernels, c.device.cuda),
        planner(make_step_planner(model, c, meshes, world)),
        attention(model.config(), c.tp, sequences, static_cast<int>(c.profile.value().units)),
        plans_ahead(c.device.cuda && meshes.empty()),
        batch(c.cache.page_size) {
    world.keep_plans();
  }

  // Seconds of a step, and of the planner unless it plans ahead.
  template <class Prepare>
  std::optional<double> prepared(const Prepare& prepare) {
    const double begin = steady_seconds();
    const PlannedStep step = prepare();
    if (!step) return {};
    const double planning = plans_ahead ? 0 : steady_seconds() - begin;
    const double seconds = simulated(step);
    planner->record();
    return planning + seconds;
  }

  double simulated(const PlannedStep& step) {
    if (step.bound != bound) {
      bound = step.bound;
      plan = {bound->programs, bound->schedules};
    }
    const CostModel cost(config.profile.value(), ranks(bound->ranks()));
    std::vector<Work> works(step.works.begin(), step.works.end());
    if (bound->key.kind != ContextKey::Kind::apart) return simulate(plan, works, cost).seconds;
    share(works[0], step);
    return simulate(plan, works, cost, config.device.cuda ? seams(cost, works[0]) : OwnPrices())
        .seconds;
  }

  // Launches of few rows on a GPU: a profile has the time of a launch in a full stream, and a
  // decode step the seam to the next.
  OwnPrices seams(const CostModel& cost, const Work& work) const {
    const cuda::DecodeRates rates =
        cuda::absent_decode_rates(cost.profile().name, cost.profile().memory_bytes_per_second);
    return [&cost, work, seam = rates.panel_seam](const Program& program, const Op& op, bool) {
      const LaunchCost alone = cost.price(program, op, work);
      return alone.fixed > 0 ? std::optional(OwnPrice{seam, alone.body()}) : std::nullopt;
    };
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
  AbsentWorld world;
  const std::unique_ptr<StepPlanner> planner;
  const ChunkAttention attention;
  const bool plans_ahead;  // Runner::step_queue has plans for all sizes before the first step
  Batch batch;
  std::vector<int32_t> ids;
  std::shared_ptr<const BoundForward> bound;  // of `plan`, the last step's
  Plan plan;
};

PlannedTimes::PlannedTimes(const Model& model, const RunnerConfig& config, int64_t sequences)
    : impl_(std::make_unique<Impl>(model, config, meshes_of(model, config), sequences)) {}

PlannedTimes::~PlannedTimes() = default;

double PlannedTimes::seconds(std::span<const TimedRow> rows) {
  Batch& batch = impl_->batch;
  batch.clear();
  for (const TimedRow& row : rows) {
    impl_->ids.resize(static_cast<size_t>(row.tokens));
    batch.add(impl_->ids, row.cached, row.pages, row.scored, row.group);
  }
  double seconds = 0;
  while (const auto first = impl_->prepared([&] { return impl_->planner->prepare_first(batch); })) {
    seconds += *first;
  }
  seconds += impl_->prepared([&] { return impl_->planner->prepare(batch); }).value();
  if (!impl_->plans_ahead) return seconds;
  for (const TimedRow& row : rows) {
    seconds += impl_->attention.beyond(*impl_->config.profile, row.tokens, row.cached);
  }
  return seconds;
}

}  // namespace braid
