#include "braid/engine/sequence_ranks.h"

#include <limits>

#include "braid/engine/answer_seconds.h"
#include "braid/engine/newest_lines.h"
#include "braid/parallel/attention/queries.h"
#include "braid/schedule/strategies/registry.h"

namespace braid {
namespace {

constexpr Work kGatherWork{.extents = {.sequence = 1}};

}  // namespace

SequenceRanks::SequenceRanks(const MakeForward& model, const CacheShape& cache,
                             const std::vector<SequenceMesh>& meshes, const SequenceParallel& sp,
                             const std::optional<KeyLevels>& levels,
                             StrategyChoice::Strategies strategies, World& world,
                             const std::optional<CostModel>& cost)
    : model_(model),
      apart_(sp.apart || !world.samples_on_device()),
      shape_(cache),
      P_(meshes.back().ranks()),
      strategies_(std::move(strategies)),
      world_(world),
      cost_(cost),
      on_first_(model, cache, world.catalogs(1), Topology{}),
      // On GPUs a divided decode step's launches wait for each other: a single stream is fastest.
      apart_strategy_(world.samples_on_device() ? find_strategy("sequential") : strategies_[0]),
      windows_(on_first_.windows()),
      owners_(P_, cache.pages * cache.page_size,
              apart_ ? rank_cache(cache, P_).pages * cache.page_size : 0),
      keys_(owners_, cache.page_size,
            std::ranges::any_of(windows_, [](int64_t w) { return w != 0; })) {
  const auto add = [&](const SequenceMesh& mesh) {
    planners_.push_back(std::make_unique<const ForwardPlanner>(
        model, apart_ ? rank_cache(cache, P_) : cache, world.catalogs(mesh.ranks()), mesh.topology,
        mesh, std::nullopt, levels));
  };
  if (levels) thinned_.emplace(*levels, model);
  if (!sp.mode) add(sequence_mesh(SpMode::ring, Topology{}, 1));
  for (const SequenceMesh& mesh : meshes) add(mesh);
  if (sp.mode) return;
  const int64_t most = cache.pages_per_sequence * cache.page_size;
  const auto choose = [&](std::optional<PromptChoice>& choice, bool exact) {
    choice.emplace(planners_, strategies_.back(), cost_.value().profile(), most, exact,
                   sp.step_bytes);
  };
  choose(choice_, false);
  if (levels) choose(exact_choice_, true);
}

CacheShape rank_cache(CacheShape cache, int ranks) {
  cache.pages = ceil_div(cache.pages, int64_t{ranks});
  cache.apart = true;
  return cache;
}

bool SequenceRanks::has_room(int64_t tokens, int ranks) const {
  if (!apart_) return true;
  for (int r = 0; r < ranks; ++r) {
    if (owners_.left(r) < even_part(tokens, ranks, r).size()) return false;
  }
  return true;
}

int SequenceRanks::ranks_with_keys(const Batch& batch) const {
  int ranks = 1;
  for (int64_t i = 0; ranks < P_ && i < batch.sequences()[0].cached; ++i) {
    ranks = std::max(ranks, 1 + owners_.owner(slot_of(batch.pages_of(0), shape_.page_size, i)));
  }
  return ranks;
}

std::optional<size_t> SequenceRanks::way(const Batch& batch) {
  const int64_t tokens = batch.extents().token;
  // After uneven steps one rank may be full before the others.
  if (batch.sequences().size() != 1 || tokens < P_ || !has_room(tokens, P_)) return {};
  if (!choice_) return 0;
  const int with_keys = ranks_with_keys(batch);
  PromptChoice& choice = exact_choice_ && batch.exact() ? *exact_choice_ : *choice_;
  // In caches with room for all keys rank 0 computes exact prompts by its own plans.
  const bool own_plans = !apart_ && !thins(batch);
  const size_t chosen = choice.choose(tokens, batch.sequences()[0].cached, [&](int ranks) {
    // Other ranks' keys come to rank 0 where it has room for all.
    return (ranks == 1 && own_plans) || (ranks >= with_keys && has_room(tokens, ranks));
  });
  if (own_plans && chosen < planners_.size() && planners_[chosen]->ranks() == 1) return {};
  return chosen;
}

PlannedStep SequenceRanks::prepare_first(const Batch& batch) {
  gather_.reset();
  if (apart_ || way(batch)) return {};
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
      return world_.bound(key, over_ranks().plan_gather(*strategies_[0], key.kv), true);
    });
    return {bound, &*gather_, {&kGatherWork, 1}, batch.pages_end()};
  }
  return {};
}

PlannedStep SequenceRanks::prepare(const Batch& batch) {
  step_.reset();
  apart_step_.reset();
  local_step_.reset();
  alone_ = nullptr;
  if (thinned_) thinned_->begin();
  const OpScheduler& strategy = *strategies_[0];
  if (apart_) {
    prepare_owners(batch);
    const std::vector<int> homes = LocalStep::homes(batch, owners_, keys_);
    if (std::ranges::any_of(homes, [](int home) { return home >= 0; })) {
      local_step_.emplace(batch, homes, owners_, keys_, windows_);
      return prepare_apart(batch, local_step_->key(), *local_step_, local_step_->work());
    }
  }
  if (const std::optional<size_t> chosen = way(batch)) return prepare_prompt(batch, *chosen);
  if (apart_) return prepare_apart(batch);
  alone_ = &batch;
  const BatchInfo info = batch.info(1);
  cut_.assign(batch, ask(strategy, [&] { return strategy.split(info); }), strategy.name());
  ContextKey key = key_for(cut_, 0, 1);
  key.kind = ContextKey::Kind::first;
  const auto bound = plans_.get(key, [&] {
    const LayoutRequest layout = ask(strategy, [&] { return strategy.layout(info); });
    return world_.bound(key, on_first_.plan(strategy, layout, key, cost()));
  });
  return {bound, &cut_, cut_.works(), batch.pages_end()};
}

PlannedStep SequenceRanks::prepare_prompt(const Batch& batch, size_t chosen) {
  const bool whole = chosen >= planners_.size();
  whole_step_.reset();
  if (whole) {
    whole_step_.emplace(batch, owners_);
  } else {
    step_.emplace(batch, shape_.page_size, owners_, planners_[chosen]->ranks());
  }
  cut_.assign(batch, {{0, batch.extents().token}}, strategies_[0]->name());
  ContextKey key = whole ? key_for_tokens(whole_step_->kv(), whole_step_->kv(), batch.extents().row)
                         : key_for_tokens(step_->q(), step_->kv(), batch.extents().row);
  key.mesh = static_cast<int>(chosen);
  key.exact = thinned_ && batch.exact();
  const auto bound = plans_.get(key, [&] {
    PlannedForward planned = plan_tokens(key);
    if (!whole && !thins(batch)) explain_moves(key, planned);
    plans_.make_way(planned.schedules.front().memory.arena_bytes);
    return world_.bound(key, std::move(planned));
  });
  if (thins(batch)) {
    thinned_->count(whole ? even_layout(key.q.length(), 1) : key.q,
                    key.kv.length() - key.q.length());
  }
  const StepInputs* inputs = &*step_;
  if (whole) inputs = &*whole_step_;
  return {bound, inputs, cut_.works(), pages_end(batch)};
}

std::optional<Approximation> SequenceRanks::approximation() const {
  if (!thinned_) return {};
  return thinned_->made();
}

std::optional<Approximation> SequenceRanks::last_approximation() const {
  if (!thinned_) return {};
  return thinned_->last();
}

void SequenceRanks::explain_moves(const ContextKey& key, const PlannedForward& planned) {
  const std::string moves = braid::explain_moves(planned.lowered[0].program,
                                                 {planners_[key.mesh]->mesh(), key.q, key.kv});
  if (moves.empty()) return;
  const int64_t tokens = key.q.length();
  add_newest(moves_,
             fmt::format("{} tokens behind {}: {}", tokens, key.kv.length() - tokens, moves));
}

std::string SequenceRanks::faster_decode() const {
  const int64_t keys = choice_->longest();
  if (keys == 0 || P_ == 1) return "";
  const auto whole = [&](const Topology& ranks) {
    const PlannerWith planner = [&](const KernelCatalog& kernels) {
      return ForwardPlanner(model_, shape_, {static_cast<size_t>(ranks.ranks()), &kernels}, ranks);
    };
    return answer_seconds(*world_.catalogs(1)[0], planner, 1, keys,
                          CostModel(cost_->profile(), ranks));
  };
  const double here =
      apart_ ? apart_answer_seconds(over_ranks(), 1, keys, *cost_) : whole(Topology{});
  double divided = 0;
  try {
    divided = whole(over_ranks().topology());
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kInvalidArgument && error.code() != ErrorCode::kUnsupported) {
      throw;
    }
    return "";  // heads do not divide
  }
  if (divided >= here) return "";
  return fmt::format(
      "a lone answer's token behind {} keys, simulated: {:.3f} ms by {}; divided weights (--tp {}) "
      "would take {:.3f} ms",
      keys, 1e3 * here, apart_ ? "keys on all ranks" : "rank 0 alone", P_, 1e3 * divided);
}

void SequenceRanks::prepare_owners(const Batch& batch) {
  const int64_t size = shape_.page_size;
  for (int32_t slot : batch.slots()) owners_.forget_behind(slot, size);
  keys_.begin_step();
  for (size_t s = 0; s < batch.sequences().size(); ++s) {
    const std::span<const int32_t> pages = batch.pages_of(s);
    const int64_t cached = batch.sequences()[s].cached;
    if (keys_.complete(pages, cached)) continue;
    owners_.adopt(slots_of(pages, size, cached), batch.group_of(s));
  }
}

int64_t SequenceRanks::pages_end(const Batch& batch) const {
  return apart_ ? ceil_div(owners_.used(), shape_.page_size) : batch.pages_end();
}

PlannedStep SequenceRanks::prepare_apart(const Batch& batch) {
  apart_step_.emplace(batch, owners_, keys_, windows_);
  const ContextKey key =
      key_for_apart(apart_step_->tokens(), std::ssize(batch.sequences()), batch.extents().row);
  return prepare_apart(batch, key, *apart_step_, apart_step_->work());
}

PlannedStep SequenceRanks::prepare_apart(const Batch& batch, const ContextKey& key,
                                         const StepInputs& inputs, const Work& work) {
  const auto bound = plans_.get(key, [&] {
    return world_.bound(key, over_ranks().plan_apart(*apart_strategy_, key, cost()));
  });
  return {bound, &inputs, {&work, 1}, pages_end(batch)};
}

// Among several strategies the fastest in simulation.
PlannedForward SequenceRanks::plan_tokens(const ContextKey& key) const {
  if (key.mesh >= std::ssize(planners_)) {
    return over_ranks().plan_weights(choice_->weights_strategy(key.mesh), key.micro_batches[0],
                                     cost(), key.exact);
  }
  const ForwardPlanner& planner = *planners_[key.mesh];
  std::optional<CostModel> cost;  // over the mesh's ranks
  if (cost_) cost.emplace(cost_->profile(), planner.topology());
  PlannedForward best;
  double least = std::numeric_limits<double>::infinity();
  for (const auto& strategy : strategies_) {
    PlannedForward planned = planner.plan_tokens(*strategy, key.q, key.kv, key.micro_batches[0],
                                                 cost ? &*cost : nullptr, key.exact);
    if (strategies_.size() == 1 || planner.ranks() == 1) return planned;
    const int64_t tokens = key.q.length();
    const double seconds = prompt_seconds(planned, tokens, key.kv.length() - tokens, cost.value());
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
  const SequenceMesh& mesh = over_ranks().mesh();
  const int racks = mesh.topology.racks;
  const std::string over = fmt::format("sequences over {} ranks{}", P_,
                                       racks > 1 ? fmt::format(" in {} racks", racks) : "");
  std::vector<std::string> lines = {
      choice_ ? over + ": as each prompt's length asks" + (thinned_ ? ", tokens by ring alone" : "")
              : fmt::format("{}: {} attention, {}", over, to_string(mesh.mode),
                            to_string(mesh.degrees))};
  for (const auto* choice : {&choice_, &exact_choice_}) {
    if (*choice) std::ranges::move((*choice)->explain(), std::back_inserter(lines));
  }
  if (choice_) {
    if (std::string line = faster_decode(); !line.empty()) lines.push_back(std::move(line));
  }
  if (apart_) {
    const CacheShape cache = rank_cache(shape_, P_);
    lines.push_back(fmt::format("keys: {} slots on each rank, {} together",
                                cache.pages * cache.page_size, P_ * cache.pages * cache.page_size));
  }
  if (thinned_) std::ranges::move(thinned_->explain(), std::back_inserter(lines));
  lines.insert(lines.end(), moves_.begin(), moves_.end());
  for (std::string& line : plans_.explain()) lines.push_back(std::move(line));
  return lines;
}

}  // namespace braid
