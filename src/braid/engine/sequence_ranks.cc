#include "braid/engine/sequence_ranks.h"

#include <limits>

#include "braid/engine/mesh_choice.h"
#include "braid/schedule/strategies/registry.h"

namespace braid {
namespace {

constexpr Work kGatherWork{.extents = {.sequence = 1}};

}  // namespace

SequenceRanks::SequenceRanks(const MakeForward& model, const CacheShape& cache,
                             const SequenceMesh& mesh, StrategyChoice::Strategies strategies,
                             World& world, const std::optional<CostModel>& cost)
    : apart_(keys_apart(cache.pages * cache.page_size, world.samples_on_device())),
      shape_(cache),
      mesh_(mesh),
      strategies_(std::move(strategies)),
      world_(world),
      cost_(cost),
      over_ranks_(model, apart_ ? rank_cache(cache, mesh.ranks()) : cache,
                  world.catalogs(mesh.ranks()), mesh.topology, mesh),
      on_first_(model, cache, world.catalogs(1), Topology{}),
      // On GPUs the launches of such a step wait for each other: one stream is the fastest.
      apart_strategy_(world.samples_on_device() ? find_strategy("sequential") : strategies_[0]),
      windows_(over_ranks_.windows()),
      owners_(mesh.ranks(), cache.pages * cache.page_size,
              apart_ ? rank_cache(cache, mesh.ranks()).pages * cache.page_size : 0) {}

bool keys_apart(int64_t slots, bool gpus) {
  return !gpus || slots > kSlotsOfOneGpu;
}

CacheShape rank_cache(CacheShape cache, int ranks) {
  cache.pages = ceil_div(cache.pages, int64_t{ranks});
  return cache;
}

bool SequenceRanks::divided(const Batch& batch) const {
  const int64_t tokens = batch.extents().token;
  if (batch.sequences().size() != 1 || tokens < mesh_.ranks()) return false;
  // After uneven steps one rank may be full before the others.
  for (int r = 0; apart_ && r < mesh_.ranks(); ++r) {
    if (owners_.left(r) < even_part(tokens, mesh_.ranks(), r).size()) return false;
  }
  return true;
}

PlannedStep SequenceRanks::prepare_first(const Batch& batch) {
  gather_.reset();
  if (apart_ || divided(batch)) return {};
  for (size_t s = 0; s < batch.sequences().size(); ++s) {
    const std::span<const int32_t> pages = batch.pages_of(s);
    const int64_t cached = batch.sequences()[s].cached;
    bool whole = true;  // as a rule: decoding looks, and allocates nothing
    for (int64_t i = 0; i < cached && whole; ++i) {
      whole = owners_.on_first(slot_of(pages, shape_.page_size, i));
    }
    if (whole) continue;
    gather_.emplace(slots_of(pages, shape_.page_size, cached), owners_);
    ContextKey key{.kind = ContextKey::Kind::gather, .q = {}, .kv = gather_->kv()};
    key.micro_batches.push_back({.capacity = kGatherWork.extents});
    // The logits of the step before may still be wanted.
    const auto bound = plans_.get(key, [&] {
      return BoundForward{key, world_.bind(over_ranks_.plan_gather(*strategies_[0], key.kv), true)};
    });
    return {bound, &*gather_, {&kGatherWork, 1}, batch.pages_end()};
  }
  return {};
}

PlannedStep SequenceRanks::prepare(const Batch& batch) {
  step_.reset();
  apart_step_.reset();
  alone_ = nullptr;
  const OpScheduler& strategy = *strategies_[0];
  if (apart_) {
    for (int32_t slot : batch.slots()) owners_.forget(slot);
    for (size_t s = 0; s < batch.sequences().size(); ++s) {
      const std::span<const int32_t> pages = batch.pages_of(s);
      const int64_t cached = batch.sequences()[s].cached, size = shape_.page_size;
      for (int64_t i = 0; i * size < cached; ++i) {
        const int64_t first = pages[static_cast<size_t>(i)] * size;
        if (owners_.written(first, first + std::min(size, cached - i * size))) continue;
        owners_.adopt(slots_of(pages, size, cached));
        break;
      }
    }
  }
  if (divided(batch)) {
    step_.emplace(batch, shape_.page_size, owners_);
    cut_.assign(batch, {{0, batch.extents().token}}, strategy.name());
    const ContextKey key = key_for_tokens(step_->q(), step_->kv(), batch.extents().row);
    const auto bound = plans_.get(key, [&] {
      return BoundForward{key, world_.bind(plan_tokens(key))};
    });
    return {bound, &*step_, cut_.works(), pages_end(batch)};
  }
  if (apart_) return prepare_apart(batch);
  alone_ = &batch;
  const BatchInfo info = batch.info(1);
  cut_.assign(batch, ask(strategy, [&] { return strategy.split(info); }), strategy.name());
  ContextKey key = key_for(cut_, 0, 1);
  key.kind = ContextKey::Kind::first;
  const auto bound = plans_.get(key, [&] {
    const LayoutRequest layout = ask(strategy, [&] { return strategy.layout(info); });
    return BoundForward{key, world_.bind(on_first_.plan(strategy, layout, key, cost()))};
  });
  return {bound, &cut_, cut_.works(), batch.pages_end()};
}

int64_t SequenceRanks::pages_end(const Batch& batch) const {
  return apart_ ? ceil_div(owners_.used(), shape_.page_size) : batch.pages_end();
}

PlannedStep SequenceRanks::prepare_apart(const Batch& batch) {
  apart_step_.emplace(batch, shape_.page_size, owners_, windows_);
  const ContextKey key =
      key_for_apart(apart_step_->tokens(), std::ssize(batch.sequences()), batch.extents().row);
  const auto bound = plans_.get(key, [&] {
    return BoundForward{key, world_.bind(over_ranks_.plan_apart(*apart_strategy_, key, cost()))};
  });
  return {bound, &*apart_step_, {&apart_step_->work(), 1}, pages_end(batch)};
}

// With several strategies the one that a simulation finds fastest.
PlannedForward SequenceRanks::plan_tokens(const ContextKey& key) const {
  PlannedForward best;
  double least = std::numeric_limits<double>::infinity();
  for (const auto& strategy : strategies_) {
    PlannedForward planned =
        over_ranks_.plan_tokens(*strategy, key.q, key.kv, key.micro_batches[0], cost());
    if (strategies_.size() == 1) return planned;
    const int64_t tokens = key.q.length();
    const double seconds = prompt_seconds(planned, tokens, key.kv.length() - tokens, *cost_);
    if (seconds >= least) continue;
    least = seconds;
    best = std::move(planned);
  }
  return best;
}

void SequenceRanks::record() {
  if (gather_) return gather_->record(owners_);
  if (!alone_) return;
  for (int32_t slot : alone_->slots()) owners_.write(slot, 0);
}

void SequenceRanks::record_loop(std::span<const int32_t> pages, int64_t from) {
  const int64_t end = std::ssize(pages) * shape_.page_size;
  for (int64_t i = from; i < end; ++i) owners_.write(slot_of(pages, shape_.page_size, i), 0);
}

std::vector<std::string> SequenceRanks::explain() const {
  std::vector<std::string> lines = {fmt::format("sequences over {} ranks: {} attention, {}",
                                                mesh_.ranks(), to_string(mesh_.mode),
                                                to_string(mesh_.degrees))};
  if (apart_) {
    const CacheShape cache = rank_cache(shape_, mesh_.ranks());
    lines.push_back(fmt::format("keys: {} slots on each rank, {} together",
                                cache.pages * cache.page_size,
                                mesh_.ranks() * cache.pages * cache.page_size));
  }
  for (std::string& line : plans_.explain()) lines.push_back(std::move(line));
  return lines;
}

}  // namespace braid
