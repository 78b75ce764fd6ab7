#include "braid/engine/forward_plans.h"

#include <algorithm>

#include "braid/engine/attention_scopes.h"
#include "braid/engine/batch_cut.h"
#include "braid/engine/expert_load.h"
#include "braid/engine/mesh_choice.h"
#include "braid/ops/attention.h"
#include "braid/ops/fusion.h"
#include "braid/parallel/attention/logical_attention.h"
#include "braid/parallel/attention/queries.h"
#include "braid/parallel/attention/traffic.h"
#include "braid/parallel/divided_prompt.h"
#include "braid/parallel/lower_divided.h"
#include "braid/parallel/thinned_prompt.h"
#include "braid/schedule/plan_schedules.h"

namespace braid {
namespace {

bool evenly_cut(const Placement& placement) {
  return std::ranges::all_of(
      placement.parts, [&](const Range& part) { return part.size() == placement.parts[0].size(); });
}

// Asked for all values: an uneven value keeps ranks from sharing launches.
bool alike(std::span<const RankProgram> ranks) {
  return std::ranges::all_of(ranks, [](const RankProgram& rank) {
    return rank.widths.empty() && std::ranges::all_of(rank.placements, evenly_cut);
  });
}

// A lower bound of a step's seconds where keys move: in each attention the slowest rank's link.
double keys_travel(const Program& logical, const TokenSharding& tokens, const CostModel& model) {
  double seconds = 0;
  for (int i = 0; i < std::ssize(logical.ops); ++i) {
    if (logical.ops[i].def != &ops::kAttention) continue;
    double longest = 0;
    const auto travel = [&](int64_t bytes, const LinkProfile& link) {
      if (bytes > 0)
        longest = std::max(longest, static_cast<double>(bytes) / link.bytes_per_second);
    };
    for (const auto& bytes : attention_traffic(attention_over(logical, tokens, i), tokens.mesh)) {
      travel(bytes[LinkClass::machine], model.machine_link());
      travel(bytes[LinkClass::cluster], model.cluster_link());
    }
    seconds += longest;
  }
  return seconds;
}

}  // namespace

ForwardPlanner::ForwardPlanner(MakeForward model, const CacheShape& cache,
                               std::vector<const KernelCatalog*> catalogs, const Topology& topology,
                               std::optional<SequenceMesh> mesh, std::optional<RankDegrees> degrees,
                               std::optional<KeyLevels> levels)
    : model_(std::move(model)),
      cache_(cache),
      catalogs_(std::move(catalogs)),
      topology_(topology),
      mesh_(std::move(mesh)),
      levels_(std::move(levels)),
      layout_(mesh_ ? LayoutPlan{}
                    : expert_parallel(logical({1, 1, 1}),
                                      degrees.value_or(RankDegrees{.tp = ranks()}))) {}

Program ForwardPlanner::logical(const Extents& capacity, bool every_row) const {
  return model_({.capacity = capacity,
                 .pages = cache_.pages,
                 .page_size = cache_.page_size,
                 .pages_per_sequence = cache_.pages_per_sequence,
                 .kv_dtype = cache_.kv_dtype,
                 .activations = cache_.activations,
                 .every_row = every_row});
}

PlannedForward ForwardPlanner::plan(const OpScheduler& strategy, const Batch& batch, BatchCut& cut,
                                    const CostModel* model) const {
  const BatchInfo info = batch.info(ranks());
  cut.assign(batch, ask(strategy, [&] { return strategy.split(info); }), strategy.name());
  const LayoutRequest layout = ask(strategy, [&] { return strategy.layout(info); });
  const ContextKey key = key_for(cut, 0, ranks_of_group());
  return plan(strategy, layout, key, model);
}

PlannedForward ForwardPlanner::plan(const OpScheduler& strategy, const LayoutRequest& layout,
                                    const ContextKey& key, const CostModel* model) const {
  BRAID_CHECK(!mesh_, "a batch as a whole over ranks that divide tokens");
  Extents capacity;
  for (const MicroBatch& mb : key.micro_batches) capacity += mb.capacity;
  const bool groups = layout_.groups > 1;  // whose rows come together
  const Program program = logical(capacity, key.every_row && !groups);
  const bool exchanges = groups && !layout_.experts.empty();
  const bool divided = exchanges || (layout.token_sharded_residual && ranks_of_group() > 1);
  const LayoutPlan layout_plan = divided ? with_divided_rows(layout_, program) : layout_;
  std::vector<RankProgram> lowered = lower(program, layout_plan);
  if (levels_ && !key.q.ranks.empty()) thin_far_keys(lowered, *levels_, key.q, key.kv);
  return plan_lowered(strategy, std::move(lowered), key.micro_batches, model);
}

PlannedForward ForwardPlanner::plan_tokens(const OpScheduler& strategy, const SequenceLayout& q,
                                           const SequenceLayout& kv, const MicroBatch& micro_batch,
                                           const CostModel* model, bool exact) const {
  const Program program = logical(micro_batch.capacity);
  LayoutPlan layout = sequence_parallel(program, mesh_.value(), q, kv);
  if (!exact) layout.tokens->levels = levels_;
  const auto planned = [&](bool queries) {
    AttentionDivision division{.kernels = catalogs_, .queries = queries};
    return plan_lowered(strategy, lower_divided(program, layout, std::move(division)),
                        {&micro_batch, 1}, model);
  };
  const int64_t tokens = q.length(), cached = kv.length() - tokens;
  if (cached == 0 || ranks() == 1 || layout.tokens->levels) return planned(false);
  PlannedForward queries = planned(true);
  if (model == nullptr || !moves_queries(queries.programs[0])) return queries;
  // By bytes queries move. In time a mode may hide its keys.
  const double seconds = prompt_seconds(queries, tokens, cached, *model);
  if (seconds <= keys_travel(program, *layout.tokens, *model)) return queries;
  PlannedForward keys = planned(false);
  return seconds <= prompt_seconds(keys, tokens, cached, *model) ? std::move(queries)
                                                                 : std::move(keys);
}

PlannedForward ForwardPlanner::plan_weights(const OpScheduler& strategy,
                                            const MicroBatch& micro_batch, const CostModel* model,
                                            bool exact) const {
  const int64_t pages = ceil_div(micro_batch.capacity.token, cache_.page_size);
  const Program program = model_({.capacity = micro_batch.capacity,
                                  .pages = pages,
                                  .page_size = cache_.page_size,
                                  .pages_per_sequence = pages,
                                  .kv_dtype = cache_.kv_dtype,
                                  .activations = cache_.activations});
  // Where caches are for all keys, rank 0 decodes alone.
  const DividedKeys keys{
      .pages = cache_.pages, .page_size = cache_.page_size, .all_on_first = !cache_.apart};
  const BatchInfo info{.tokens = micro_batch.capacity.token, .ranks = ranks()};
  const LayoutRequest layout = ask(strategy, [&] { return strategy.layout(info); });
  std::vector<RankProgram> lowered =
      lower_divided_prompt(program, ranks(), keys, layout.token_sharded_residual);
  if (levels_ && !exact) {
    const SequenceLayout all = even_layout(micro_batch.capacity.token, 1);
    thin_far_keys(lowered, *levels_, all, all);
  }
  return plan_lowered(strategy, std::move(lowered), {&micro_batch, 1}, model);
}

PlannedForward ForwardPlanner::plan_apart(const OpScheduler& strategy, const ContextKey& key,
                                          const CostModel* model) const {
  const Program program = logical(key.micro_batches[0].capacity);
  SequenceLayout none;
  none.ranks.resize(key.q.ranks.size());
  LayoutPlan layout = sequence_parallel(program, mesh_.value(), key.q, none);
  const int64_t slots = cache_.pages * cache_.page_size;
  layout.tokens->apart =
      key.own > 0 ? KeysApart{.slots = key.sequences * slots, .windows = {}, .own = key.own}
                  : KeysApart{.sequences = key.sequences, .slots = slots, .windows = {}};
  layout.tokens->apart->windows = attention_windows(program);
  return plan_lowered(strategy, lower(program, layout),
                      {key.micro_batches.begin(), key.micro_batches.size()}, model);
}

PlannedForward ForwardPlanner::plan_gather(const OpScheduler& strategy,
                                           const SequenceLayout& kv) const {
  const MicroBatch one{.capacity = {.sequence = 1}};
  return plan_lowered(strategy, gather_kv(logical({1, 1, 1}), kv), {&one, 1}, nullptr);
}

PlannedForward ForwardPlanner::plan_lowered(const OpScheduler& strategy,
                                            std::vector<RankProgram> lowered,
                                            std::span<const MicroBatch> micro_batches,
                                            const CostModel* model) const {
  PlannedForward forward;
  forward.lowered = std::move(lowered);
  for (RankProgram& rank : forward.lowered) {
    keep_expert_rows(rank.program);
    const KernelCatalog& catalog = *catalogs_[rank.rank];
    Program fused = fuse(fuse(rank.program, fusions()), catalog.fusions());
    forward.programs.push_back(catalog.rewrite(std::move(fused)));
  }
  PlanRequest request{.catalogs = catalogs_,
                      .micro_batches = {micro_batches.begin(), micro_batches.end()},
                      .topology = topology_,
                      .price = {},
                      .ranks_alike = alike(forward.lowered)};
  if (model != nullptr) {
    request.price = [&](const Op& op, int mb) {
      const Extents& capacity = micro_batches[mb].capacity;
      return model->seconds(forward.programs[0], op,
                            {.extents = capacity,
                             .attended = attended_keys(0, capacity.token),
                             .kv_tokens = capacity.token});
    };
  }
  plan_schedules(forward, strategy, request);
  return forward;
}

int64_t BoundForward::device_bytes() const {
  int64_t most = 0;
  for (const auto& executor : executors) {
    if (executor) most = std::max(most, executor->replay().device_bytes());
  }
  return most;
}

void ForwardCache::make_room() {
  int64_t bytes = 0;
  size_t kept = 0;
  for (auto it = plans_.begin(); it != plans_.end(); ++it, ++kept) {
    bytes += (*it)->device_bytes();
    if (kept == 0 || (kept + 1 < kCapacity && bytes <= kDeviceBytes)) continue;
    plans_.erase(it, plans_.end());
    return;
  }
}

void ForwardCache::make_way(int64_t arena_bytes) {
  if (arena_bytes > arena_bytes_ && arena_bytes_ > kArenaBytes) plans_.clear();
  arena_bytes_ = std::max(arena_bytes_, arena_bytes);
}

std::vector<std::string> ForwardCache::explain() const {
  std::vector<std::string> lines;
  for (const auto& plan : plans_) {
    const auto here =
        std::ranges::find_if(plan->executors, [](const auto& e) { return e != nullptr; });
    if (here == plan->executors.end()) continue;
    const Executor& executor = **here;
    const Schedule& schedule = executor.schedule();
    lines.push_back(fmt::format("{}: {}, {} launches", to_string(plan->key), schedule.strategy,
                                schedule.num_launches()));
    if (const std::string experts = expert_placement(executor.program(), plan->ranks());
        !experts.empty()) {
      lines.push_back("  " + experts);
    }
    for (const std::string& scope : attention_scopes(executor.program(), schedule)) {
      lines.push_back("  " + scope);
    }
  }
  return lines;
}

}  // namespace braid
