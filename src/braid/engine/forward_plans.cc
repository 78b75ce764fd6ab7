#include "braid/engine/forward_plans.h"

#include "braid/ops/fusion.h"
#include "braid/parallel/tensor_parallel.h"

namespace braid {

std::vector<const Program*> PlannedForward::programs() const {
  std::vector<const Program*> result;
  for (const Program& program : fused) result.push_back(&program);
  return result;
}

ForwardPlanner::ForwardPlanner(MakeForward model, const CacheShape& cache,
                               std::vector<const KernelCatalog*> catalogs, const Topology& topology)
    : model_(std::move(model)),
      cache_(cache),
      catalogs_(std::move(catalogs)),
      topology_(topology),
      layout_(tensor_parallel(logical({1, 1, 1}), ranks())) {}

Program ForwardPlanner::logical(const Extents& capacity) const {
  return model_({.capacity = capacity,
                 .pages = cache_.pages,
                 .page_size = cache_.page_size,
                 .pages_per_sequence = cache_.pages_per_sequence,
                 .kv_dtype = cache_.kv_dtype,
                 .activations = cache_.activations});
}

PlannedForward ForwardPlanner::plan(const OpScheduler& strategy, const Batch& batch, BatchCut& cut,
                                    const CostModel* model) const {
  const BatchInfo info = batch.info(ranks());
  cut.assign(batch, ask(strategy, [&] { return strategy.split(info); }), strategy.name());
  const LayoutRequest layout = ask(strategy, [&] { return strategy.layout(info); });
  const ContextKey key = key_for(cut, 0, ranks());
  return plan(strategy, layout, key.micro_batches, model);
}

PlannedForward ForwardPlanner::plan(const OpScheduler& strategy, const LayoutRequest& layout,
                                    std::span<const MicroBatch> micro_batches,
                                    const CostModel* model) const {
  Extents capacity;
  for (const MicroBatch& mb : micro_batches) capacity += mb.capacity;
  LayoutPlan layout_plan = layout_;
  layout_plan.token_sharded_residual = layout.token_sharded_residual && ranks() > 1;
  PlannedForward forward;
  forward.lowered = lower(logical(capacity), layout_plan);
  std::vector<PlanRank> plan_ranks;
  for (const RankProgram& rank : forward.lowered) {
    const auto r = static_cast<size_t>(rank.rank);
    forward.fused.push_back(fuse(fuse(rank.program, fusions()), catalogs_[r]->fusions()));
  }
  for (size_t r = 0; r < forward.fused.size(); ++r) {
    plan_ranks.push_back({&forward.fused[r], catalogs_[r]});
  }
  PlanRequest request{.micro_batches = {micro_batches.begin(), micro_batches.end()},
                      .topology = topology_,
                      .price = {}};
  if (model != nullptr) {
    request.price = [&](const Op& op, int mb) {
      const Extents& capacity = micro_batches[static_cast<size_t>(mb)].capacity;
      return model->seconds(forward.fused[0], op,
                            {.extents = capacity,
                             .attended = attended_keys(0, capacity.token),
                             .kv_tokens = capacity.token});
    };
  }
  forward.schedules = braid::plan(strategy, plan_ranks, request);
  return forward;
}

std::vector<std::pair<ContextKey, size_t>> ForwardCache::keys() const {
  std::vector<std::pair<ContextKey, size_t>> result;
  for (const BoundForward& plan : plans_) {
    result.emplace_back(plan.key, plan.executors[0]->schedule().launches.size());
  }
  return result;
}

}  // namespace braid
