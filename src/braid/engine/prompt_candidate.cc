#include "braid/engine/prompt_candidate.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "braid/base/math.h"
#include "braid/engine/batch_cut.h"
#include "braid/engine/limits.h"
#include "braid/engine/strategy_choice.h"
#include "braid/kernels/cuda/thinning/most_parts.h"

namespace braid {
namespace {

Work prompt_work(int64_t tokens, int64_t cached) {
  return {.extents = {.token = tokens, .sequence = 1, .row = 1},
          .attended = attended_keys(cached, tokens),
          .kv_tokens = cached + tokens};
}

// A batch of a single sequence.
PlannedForward plan_thinned(const ForwardPlanner& planner, const OpScheduler& strategy,
                            const Batch& batch, BatchCut& cut, const CostModel& cost) {
  const auto [tokens, cached, scored] = batch.sequences()[0];
  const int ranks = planner.ranks();
  cut.assign(batch, {{0, tokens}}, strategy.name());
  return planner.plan(strategy, strategy.layout(batch.info(ranks)),
                      key_for_thinned(tokens, cached, scored, ranks), &cost);
}

}  // namespace

std::vector<Topology> parts_of(const Topology& all) {
  std::vector<Topology> found;
  const int rack = all.machines / all.racks;  // machines
  const auto add = [&](int racks, int machines, int devices) {
    Topology t = all;
    t.racks = racks;
    t.machines = machines;
    t.devices = devices;
    found.push_back(t);
  };
  for (int n = 1; n <= all.devices; ++n) {
    if (all.devices % n == 0 || all.devices <= kUnevenDevices) add(1, 1, n);
  }
  for (int n = 2; n <= rack; ++n) add(1, n, all.devices);
  for (int n = 2; n <= all.racks; ++n) add(n, n * rack, all.devices);
  return found;
}

bool thins(const std::optional<KeyLevels>& levels, int64_t tokens) {
  return levels && tokens >= levels->groups.back();
}

std::string too_many_parts(const std::optional<KeyLevels>& levels, int64_t tokens, int ranks,
                           const Profile& profile) {
  if (profile.shared_units || !thins(levels, tokens)) return {};
  const int most = ranks * static_cast<int>(cuda::kMostThinnedParts / 2);
  const int all = levels->groups.back();
  if (all <= most) return {};
  return fmt::format(
      "far keys of {} ranks' parts: a GPU thins those of {} at most; name fewer by --levels", all,
      most);
}

void PromptCandidate::add(const PromptCandidate& step) {
  ++steps;
  seconds += step.seconds;
  wire_bytes += step.wire_bytes;
  rack_bytes += step.rack_bytes;
  shares += step.shares;
  if (step.bytes.all() > bytes.all()) bytes = step.bytes;
}

std::string PromptCandidate::name() const {
  if (division == PromptDivision::whole) return "one rank";
  if (division == PromptDivision::weights) return "weights divided, " + strategy;
  return mesh ? fmt::format("tokens divided, {} ({})", to_string(mesh->mode),
                            to_string(mesh->degrees))
              : "tokens divided";
}

StepBytes step_bytes(const PlannedForward& planned) {
  StepBytes fullest;
  for (size_t r = 0; r < planned.programs.size(); ++r) {
    StepBytes rank{.activations = static_cast<double>(planned.schedules[r].memory.arena_bytes)};
    for (const Value& value : planned.programs[r].values) {
      if (value.kind == ValueKind::weight)
        rank.weights += static_cast<double>(bytes_of(value.type));
      if (value.kind == ValueKind::state) rank.keys += static_cast<double>(bytes_of(value.type));
    }
    if (rank.all() > fullest.all()) fullest = rank;
  }
  return fullest;
}

void measure(PromptCandidate& made, const PlannedForward& planned, const SimulatedStep& step) {
  made.seconds = step.seconds;
  made.wire_bytes = std::accumulate(step.wire_bytes.begin(), step.wire_bytes.end(), 0.0);
  made.rack_bytes = step.rack_bytes;
  made.bytes = step_bytes(planned);
}

PlannedForward plan_prompt_step(const ForwardPlanner& planner, const OpScheduler& strategy,
                                int64_t tokens, int64_t cached, const CostModel* cost, bool exact) {
  const SequenceLayout q = even_zigzag_layout(tokens, planner.ranks(), cached);
  const SequenceLayout kv = even_zigzag_layout(cached + tokens, planner.ranks());
  return planner.plan_tokens(strategy, q, kv, key_for_tokens(q, kv, 1).micro_batches[0], cost,
                             exact);
}

PromptCandidate tokens_candidate(const ForwardPlanner& planner, const OpScheduler& strategy,
                                 int64_t tokens, int64_t cached, const CostModel& cost,
                                 bool exact) {
  const SequenceMesh& mesh = planner.mesh();
  PromptCandidate made{
      .division = mesh.ranks() > 1 ? PromptDivision::tokens : PromptDivision::whole,
      .topology = mesh.topology,
      .mesh = mesh,
      .strategy = strategy.name()};
  if (!exact) made.refused = too_many_parts(planner.levels(), tokens, mesh.ranks(), cost.profile());
  if (!made.refused.empty()) return made;
  const PlannedForward planned = plan_prompt_step(planner, strategy, tokens, cached, &cost, exact);
  const Work work = prompt_work(tokens, cached);
  measure(made, planned, simulate(planned, {&work, 1}, cost));
  return made;
}

PromptCandidate weights_candidate(const ForwardPlanner& planner, const OpScheduler& strategy,
                                  int64_t tokens, int64_t cached, const CostModel& cost,
                                  bool exact) {
  PromptCandidate made{.division = PromptDivision::weights,
                       .topology = planner.topology(),
                       .strategy = strategy.name()};
  if (cached > 0) {
    made.refused = fmt::format("{} earlier keys lie with their tokens' ranks", cached);
    return made;
  }
  if (!exact) made.refused = too_many_parts(planner.levels(), tokens, 1, cost.profile());
  if (!made.refused.empty()) return made;
  const SequenceLayout q = even_zigzag_layout(tokens, planner.ranks());
  try {
    const PlannedForward planned =
        planner.plan_weights(strategy, key_for_tokens(q, q, 1).micro_batches[0], &cost, exact);
    const Work work = prompt_work(tokens, 0);
    measure(made, planned, simulate(planned, {&work, 1}, cost));
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kInvalidArgument && error.code() != ErrorCode::kUnsupported) {
      throw;
    }
    made.refused = error.what();
  }
  return made;
}

PromptCandidate batch_candidate(const ForwardPlanner& planner, int64_t tokens, int64_t cached,
                                const CostModel& cost, bool exact) {
  PromptCandidate made{
      .division = planner.ranks() > 1 ? PromptDivision::weights : PromptDivision::whole,
      .topology = planner.topology()};
  std::vector<int32_t> pages(ceil_div(cached + tokens, kPageSize));
  const std::vector<int32_t> ids(tokens);
  Batch batch(kPageSize);
  batch.add(ids, cached, pages, 1);
  const auto strategy = fastest_strategy(planner, batch, cost);
  BatchCut cut;
  const PlannedForward planned = exact ? planner.plan(*strategy, batch, cut, &cost)
                                       : plan_thinned(planner, *strategy, batch, cut, cost);
  made.strategy = strategy->name();
  measure(made, planned, simulate(planned, cut.works(), cost));
  return made;
}

PromptCandidate between(const PromptCandidate& a, const PromptCandidate& b, double part) {
  PromptCandidate made = b;
  made.seconds = std::lerp(a.seconds, b.seconds, part);
  made.wire_bytes = std::lerp(a.wire_bytes, b.wire_bytes, part);
  made.rack_bytes = std::lerp(a.rack_bytes, b.rack_bytes, part);
  made.shares = between(a.shares, b.shares, part);
  return made;
}

std::optional<size_t> choose_candidate(std::span<const PromptCandidate> candidates) {
  double least = std::numeric_limits<double>::infinity();
  for (const PromptCandidate& c : candidates) {
    if (c.refused.empty()) least = std::min(least, c.seconds);
  }
  // The first within the tie has the fewest ranks; among as many ranks the fastest counts.
  std::optional<size_t> chosen;
  for (size_t i = 0; i < candidates.size(); ++i) {
    const PromptCandidate& c = candidates[i];
    if (!c.refused.empty() || c.seconds > least * (1 + kPromptTie)) continue;
    if (!chosen ||
        (c.ranks() == candidates[*chosen].ranks() && c.seconds < candidates[*chosen].seconds)) {
      chosen = i;
    }
  }
  return chosen;
}

}  // namespace braid
