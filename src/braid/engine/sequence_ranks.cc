#include "braid/engine/sequence_ranks.h"

#include <algorithm>
#include <limits>

#include "braid/backend/null/null_backend.h"
#include "braid/ops/segment_attention.h"
#include "braid/schedule/simulator.h"

namespace braid {
namespace {

std::vector<const KernelCatalog*> catalogs_of(World& world, int ranks) {
  std::vector<const KernelCatalog*> catalogs;
  for (int r = 0; r < ranks; ++r) catalogs.push_back(&world.rank(r).backend().catalog());
  return catalogs;
}

double simulated_seconds(const PlannedForward& planned, int64_t tokens, int64_t cached,
                         const CostModel& cost) {
  const Work work{.extents = {.token = tokens, .sequence = 1, .row = 1},
                  .attended = attended_keys(cached, tokens),
                  .kv_tokens = cached + tokens};
  return simulate(planned.programs(), planned.schedules, {&work, 1}, cost).seconds;
}

// ring, ulysses or tas have the same groups.
bool repeats_another_mode(const SequenceMesh& mesh) {
  const SpDegrees& d = mesh.degrees;
  const bool hybrid = mesh.mode == SpMode::usp || mesh.mode == SpMode::tas;
  return (hybrid && (d.ulysses == 1 || d.ring == 1)) ||
         (mesh.mode == SpMode::torus && d.torus == 1);
}

}  // namespace

SequenceMesh choose_mesh(const SequenceParallel& sp, const MakeForward& model, int64_t q_heads,
                         const CacheShape& cache, const Topology& topology,
                         const OpScheduler& strategy, const ops::TakesStages& takes,
                         const CostModel* cost) {
  if (sp.mode) return sequence_mesh(*sp.mode, topology, q_heads, sp.degrees);
  if (cost == nullptr) {
    fail(ErrorCode::kInvalidArgument, "sp 'auto' prices modes: it needs a profile");
  }
  const int P = topology.ranks();
  const int64_t most = cache.pages * cache.page_size;
  const int64_t tokens = sp.tokens > 0 ? std::min(std::max<int64_t>(sp.tokens, P), most) : most;
  NullBackend backend(takes);
  const SequenceLayout layout = even_zigzag_layout(tokens, P);
  const ContextKey key = key_for_tokens(layout, layout, 1);
  std::optional<SequenceMesh> best;
  double least = std::numeric_limits<double>::infinity();
  for (SpMode mode : kSpModes) {
    for (const SequenceMesh& mesh : sequence_meshes(mode, topology, q_heads, sp.degrees)) {
      if (best && repeats_another_mode(mesh)) continue;
      const ForwardPlanner planner(
          model, cache, std::vector(static_cast<size_t>(P), &backend.catalog()), topology, mesh);
      const double seconds = simulated_seconds(
          planner.plan_tokens(strategy, layout, layout, key.micro_batches[0], cost), tokens, 0,
          *cost);
      if (seconds >= least) continue;
      least = seconds;
      best = mesh;
    }
  }
  if (!best) {
    const auto say = [](const std::optional<int>& degree) {
      return degree ? fmt::format("{}", *degree) : "any";
    };
    fail(ErrorCode::kInvalidArgument,
         "sp 'auto': no mode divides {}x{} ranks and {} query heads with torus degree {}, ulysses "
         "degree {}, ring degree {}",
         topology.machines, topology.devices, q_heads, say(sp.degrees.torus),
         say(sp.degrees.ulysses), say(sp.degrees.ring));
  }
  return *best;
}

std::vector<std::string> attention_stages(const Program& program, const Schedule& schedule) {
  const auto attention = [](std::string_view scope) { return scope.substr(0, scope.rfind('.')); };
  const auto first = std::ranges::find(program.ops, &ops::kSegmentAttention, &Op::def);
  if (first == program.ops.end()) return {};
  std::vector<std::pair<std::string, std::string>> stages;
  for (const Launch& launch : schedule.launches) {
    const Op& op = schedule.op(program, launch);
    if (attention(op.scope) != attention(first->scope) || op.def == &ops::kBuffers) continue;
    auto stage = std::ranges::find(stages, op.scope, &std::pair<std::string, std::string>::first);
    if (stage == stages.end()) stage = stages.insert(stages.end(), {op.scope, ""});
    stage->second += fmt::format("{}{} {}", stage->second.empty() ? "" : ", ",
                                 to_string(launch.stream), op.def->kind);
  }
  std::vector<std::string> lines;
  for (const auto& [scope, what] : stages) lines.push_back(fmt::format("{}: {}", scope, what));
  return lines;
}

SequenceRanks::SequenceRanks(const MakeForward& model, const CacheShape& cache,
                             const SequenceMesh& mesh,
                             std::vector<std::shared_ptr<const OpScheduler>> strategies,
                             World& world, const CostModel* cost)
    : shape_(cache),
      mesh_(mesh),
      strategies_(std::move(strategies)),
      world_(world),
      cost_(cost),
      over_ranks_(model, cache, catalogs_of(world, mesh.ranks()), mesh.topology, mesh),
      on_first_(model, cache, catalogs_of(world, 1), Topology{}),
      owners_(mesh.ranks(), cache.pages * cache.page_size) {}

std::shared_ptr<BoundForward> SequenceRanks::prepare(const Batch& batch, ForwardCache& cache,
                                                     BatchCut& cut, const Run& run) {
  step_.reset();
  const OpScheduler& strategy = *strategies_[0];
  if (batch.sequences().size() == 1 && batch.extents().token >= mesh_.ranks()) {
    step_.emplace(batch, shape_.page_size, owners_, mesh_.ranks());
    cut.assign(batch, {{0, batch.extents().token}}, strategy.name());
    const ContextKey key = key_for_tokens(step_->q(), step_->kv(), batch.extents().row);
    return cache.get(key, [&] { return bind(key, plan_tokens(key)); });
  }
  gather(batch, cache, run);
  const BatchInfo info = batch.info(1);
  cut.assign(batch, ask(strategy, [&] { return strategy.split(info); }), strategy.name());
  ContextKey key = key_for(cut, 0, 1);
  key.kind = ContextKey::Kind::first;
  return cache.get(key, [&] {
    const LayoutRequest layout = ask(strategy, [&] { return strategy.layout(info); });
    return bind(key, on_first_.plan(strategy, layout, key, cost_));
  });
}

// With several strategies the one that a simulation finds fastest.
PlannedForward SequenceRanks::plan_tokens(const ContextKey& key) const {
  PlannedForward best;
  double least = std::numeric_limits<double>::infinity();
  for (const auto& strategy : strategies_) {
    PlannedForward planned =
        over_ranks_.plan_tokens(*strategy, key.q, key.kv, key.micro_batches[0], cost_);
    if (strategies_.size() == 1) return planned;
    const int64_t tokens = key.q.length();
    const double seconds = simulated_seconds(planned, tokens, key.kv.length() - tokens, *cost_);
    if (seconds >= least) continue;
    least = seconds;
    best = std::move(planned);
  }
  return best;
}

void SequenceRanks::gather(const Batch& batch, ForwardCache& cache, const Run& run) {
  for (size_t s = 0; s < batch.sequences().size(); ++s) {
    const std::span<const int32_t> pages = batch.pages_of(s);
    const int64_t cached = batch.sequences()[s].cached;
    bool whole = true;  // as a rule: decoding looks, and allocates nothing
    for (int64_t i = 0; i < cached && whole; ++i) {
      whole = owners_.on_first(slot_of(pages, shape_.page_size, i));
    }
    if (whole) continue;
    const KvGather gather(slots_of(pages, shape_.page_size, cached), owners_);
    ContextKey key{.kind = ContextKey::Kind::gather, .q = {}, .kv = gather.kv()};
    key.micro_batches.push_back({.capacity = {.sequence = 1}});
    // The logits of the step before may still be wanted.
    const auto bound = cache.get(
        key, [&] { return bind(key, over_ranks_.plan_gather(*strategies_[0], key.kv), true); });
    run(*bound, [&](Executor& executor, int rank) { gather.write(executor, rank); });
    gather.record(owners_);
  }
}

BoundForward SequenceRanks::bind(const ContextKey& key, PlannedForward planned, bool beside) {
  BoundForward bound{key, {}};
  for (size_t r = 0; r < planned.fused.size(); ++r) {
    bound.executors.push_back(world_.rank(static_cast<int>(r))
                                  .bind(planned.lowered[r], std::move(planned.fused[r]),
                                        std::move(planned.schedules[r]), beside));
  }
  return bound;
}

void SequenceRanks::write(const BatchCut& cut, Executor& executor, int rank) const {
  if (step_) {
    step_->write(executor, rank);
  } else {
    cut.write(executor);
  }
}

void SequenceRanks::record(const Batch& batch) {
  if (step_) return step_->record(owners_);
  for (int32_t slot : batch.slots()) owners_.write(slot, 0);
}

void SequenceRanks::record_first(std::span<const int32_t> pages, int64_t from) {
  const int64_t end = std::ssize(pages) * shape_.page_size;
  for (int64_t i = from; i < end; ++i) owners_.write(slot_of(pages, shape_.page_size, i), 0);
}

}  // namespace braid
