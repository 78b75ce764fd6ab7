#include "braid/engine/prompt_plan.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <span>
#include <utility>

#include "braid/backend/null/null_backend.h"
#include "braid/base/math.h"
#include "braid/engine/answer_seconds.h"
#include "braid/engine/batch_cut.h"
#include "braid/engine/divided_keys.h"
#include "braid/engine/kv_dtype.h"
#include "braid/engine/limits.h"
#include "braid/engine/sequence_ranks.h"
#include "braid/engine/step_fit.h"
#include "braid/engine/step_planners.h"
#include "braid/model/model.h"
#include "braid/model/model_shape.h"
#include "braid/parallel/attention/logical_attention.h"
#include "braid/schedule/simulator.h"
#include "braid/schedule/strategies/registry.h"

namespace braid {
namespace {

constexpr double kGb = 1e9;
constexpr int64_t kSimulatedSteps = 16;  // of a prompt; others are linear between

void check(const PromptRequest& r) {
  if (r.model.empty() == r.config.empty()) {
    fail(ErrorCode::kInvalidArgument, "wanted is one of -m and --config");
  }
  require_between("--tokens", r.tokens, 1, kMostTokens);
  require_between("--depth", r.cached, 0, kMostTokens - r.tokens);
  if (!(r.memory_gb > 0 && r.memory_gb <= 1e6)) {
    fail(ErrorCode::kInvalidArgument, "--memory is {} GB, wanted above 0 to 1000000", r.memory_gb);
  }
}

// Whether a rule of the model or of a division forbids a candidate.
bool forbids(const Error& error) {
  return error.code() == ErrorCode::kInvalidArgument || error.code() == ErrorCode::kUnsupported;
}

// A candidate's ranks, and the mode that divides tokens; none: weights are divided.
struct Way {
  Topology topology;
  std::optional<SpMode> mode;

  PromptDivision division() const {
    if (mode) return PromptDivision::tokens;
    return topology.ranks() > 1 ? PromptDivision::weights : PromptDivision::whole;
  }
};

// Shared by all candidates.
class Planning {
 public:
  Planning(const PromptRequest& request, const Topology& all)
      : request_(request), profile_(load_profile(request.profile)) {
    if (request.model.empty()) {
      shape_ = read_model_shape(request.config);
    } else {
      weights_.emplace(request.model);
    }
    ModelConfig stretched = config();
    const int64_t tokens = request.cached + request.tokens;
    stretch_context(stretched, tokens);
    if (tokens > stretched.context) {
      fail(ErrorCode::kInvalidArgument, "--tokens is {}{}: the model has {} positions",
           request.tokens,
           request.cached > 0 ? fmt::format(" behind --depth {}", request.cached) : "",
           stretched.context);
    }
    cache_.page_size = kPageSize;
    cache_.activations = profile_.activations;
    cache_.kv_dtype =
        choose_kv_dtype({}, weights_ ? weights_->default_kv_dtype() : shape_.weight_dtype,
                        cache_.activations == DType::bf16, false);
    if (request.thinning) take_levels(all);
  }

  const std::optional<KeyLevels>& levels() const { return levels_; }
  const ModelConfig& config() const { return weights_ ? weights_->config() : shape_.config; }

  PromptCandidate candidate(const Way& way) const {
    const Steps steps = steps_of(way);
    PromptCandidate made = in_steps(steps);
    try {
      made.token_seconds = token_seconds(way);
    } catch (const Error& error) {
      if (!forbids(error)) throw;
    }
    return made;
  }

  // The most tokens in whole pages behind the cached tokens that fit, if more than `others` do.
  int64_t longest(const Way& way, int64_t others) const {
    const Steps steps = steps_of(way);
    const auto bytes = [&](int64_t tokens) {
      return last_step(steps, kLeastRankTokens, request_.cached + tokens).bytes.all();
    };
    if (bytes(others + kPageSize) > room()) return 0;
    return longest_that_fits(room(), request_.tokens, kPageSize, bytes);
  }

 private:
  // A way's steps.
  struct Steps {
    int parts = 1;  // ranks that divide a step's tokens
    // With `tokens` tokens behind `cached` others, and room for `all` in the cache.
    std::function<PromptCandidate(int64_t tokens, int64_t cached, int64_t all)> make;
  };

  void take_levels(const Topology& all) {
    check_keep(request_.thinning, SequenceParallel{}, all);
    require_far_keys(config(), request_.cached + request_.tokens);
    levels_ =
        all.ranks() > 1 ? levels_of(request_.thinning, all) : levels_of(request_.thinning, {});
    layers_ = attention_layers(
        forward({.capacity = {1, 1, 1}, .pages = 1, .page_size = 1, .pages_per_sequence = 1}));
  }

  Program forward(const ForwardShape& s) const {
    return weights_ ? weights_->forward(s) : shape_.forward(s);
  }

  // Fails where the levels do not go with a division of tokens.
  void require_parts(const SequenceMesh& mesh) const {
    if (!levels_) return;
    if (mesh.mode != SpMode::ring) {
      fail(ErrorCode::kInvalidArgument, "far keys are left out in a ring alone");
    }
    if (const int all = levels_->groups.back(); all % mesh.ranks() != 0) {
      fail(ErrorCode::kInvalidArgument, "parts of {} ranks do not divide over {}", all,
           mesh.ranks());
    }
    require_few_parts(mesh.ranks());
  }

  // Fails where each of `ranks` GPUs would thin the keys of too many parts.
  void require_few_parts(int ranks) const {
    const std::string why = too_many_parts(levels_, request_.tokens, ranks, profile_);
    if (!why.empty()) fail(ErrorCode::kUnsupported, "{}", why);
  }

  // Writes what a step reads, of tokens on `ranks` ranks.
  void count_shares(PromptCandidate& made, int64_t tokens, int64_t cached, int ranks) const {
    if (!levels_) return;
    made.shares = level_shares(thins(levels_, tokens) ? *levels_ : keeping_all(*levels_), layers_,
                               even_zigzag_layout(tokens, ranks, cached), cached);
  }

  int64_t all_tokens() const { return request_.cached + request_.tokens; }
  double room() const { return request_.memory_gb * kGb; }

  Steps steps_of(const Way& way) const {
    const CostModel cost(profile_, way.topology);
    if (!way.mode) {
      require_few_parts(1);
      return {1, [=, this](int64_t tokens, int64_t cached, int64_t all) {
                PromptCandidate made =
                    batch_candidate(planner_of(way.topology, {}, false, all), tokens, cached, cost,
                                    !thins(levels_, tokens));
                count_shares(made, tokens, cached, 1);
                return made;
              }};
    }
    const SequenceMesh mesh = sequence_mesh(*way.mode, way.topology, config().Hq, {});
    require_parts(mesh);
    return {mesh.ranks(), [=, this](int64_t tokens, int64_t cached, int64_t all) {
              const bool apart = cache_.activations != DType::bf16 ||
                                 keys_apart(divided_keys(config(), cache_.kv_dtype,
                                                         round_up(all, kPageSize), mesh.ranks()));
              PromptCandidate made = tokens_candidate(planner_of(way.topology, mesh, apart, all),
                                                      *find_strategy("sequence_parallel"), tokens,
                                                      cached, cost, !thins(levels_, tokens));
              count_shares(made, tokens, cached, mesh.ranks());
              return made;
            }};
  }

  // A token behind the prompt.
  double token_seconds(const Way& way) const {
    const CostModel cost(profile_, way.topology);
    if (way.mode) {
      const SequenceMesh mesh = sequence_mesh(*way.mode, way.topology, config().Hq, {});
      return apart_answer_seconds(planner_of(way.topology, mesh, true, all_tokens()), 1,
                                  all_tokens(), cost);
    }
    const PlannerWith planner = [&](const KernelCatalog& kernels) {
      return planner_of(way.topology, {}, false, all_tokens(), &kernels);
    };
    return answer_seconds(backend_.catalog(), planner, 1, all_tokens(), cost);
  }

  // The step that takes most memory: as many tokens as others, behind all others.
  PromptCandidate last_step(const Steps& steps, int64_t rank_tokens, int64_t all) const {
    const int64_t tokens = std::min(rank_tokens * steps.parts, all - request_.cached);
    return steps.make(tokens, all - tokens, all);
  }

  // The prompt in the largest steps that fit, or refused.
  PromptCandidate in_steps(const Steps& steps) const {
    std::map<int64_t, PromptCandidate> last;  // by a rank's tokens
    const std::optional<int64_t> fits = rank_tokens_that_fit(room(), [&](int64_t rank_tokens) {
      const auto& made = last.emplace(rank_tokens, last_step(steps, rank_tokens, all_tokens()));
      return made.first->second.bytes.all();
    });
    const int64_t rank_tokens = fits.value_or(kRankTokens);
    PromptCandidate made = request_.tokens <= rank_tokens * steps.parts
                               ? last.at(rank_tokens)
                               : in_steps(steps, rank_tokens * steps.parts);
    made.rank_tokens = rank_tokens;
    if (fits) return made;
    made.rank_tokens = kLeastRankTokens;
    made.bytes = last.at(kLeastRankTokens).bytes;
    made.refused = fmt::format("wants {:.1f} GB a rank, there are {:.1f}", made.bytes.all() / kGb,
                               request_.memory_gb);
    return made;
  }

  // The prompt in steps of `most` tokens.
  PromptCandidate in_steps(const Steps& steps, int64_t most) const {
    const int64_t whole = request_.tokens / most;
    const int64_t stride = ceil_div(whole, kSimulatedSteps);
    const auto simulated = [&](int64_t i) {
      const int64_t before = i * most;
      return steps.make(std::min(most, request_.tokens - before), request_.cached + before,
                        all_tokens());
    };
    PromptCandidate from = simulated(0), to = from, made = from;
    int64_t begin = 0, end = 0;  // steps that are simulated; times between are linear
    for (int64_t i = 1; i < whole; ++i) {
      if (i > end) {
        begin = end;
        end = std::min(begin + stride, whole - 1);
        from = std::exchange(to, simulated(end));
      }
      made.add(
          between(from, to, static_cast<double>(i - begin) / static_cast<double>(end - begin)));
    }
    if (whole * most < request_.tokens) made.add(simulated(whole));
    return made;
  }

  // With a cache for `tokens` tokens.
  ForwardPlanner planner_of(const Topology& topology, std::optional<SequenceMesh> mesh, bool apart,
                            int64_t tokens, const KernelCatalog* kernels = nullptr) const {
    CacheShape cache = cache_;
    cache.pages = cache.pages_per_sequence = ceil_div(tokens, kPageSize);
    const std::vector<const KernelCatalog*> catalogs(topology.ranks(),
                                                     kernels ? kernels : &backend_.catalog());
    return ForwardPlanner([this](const ForwardShape& s) { return forward(s); },
                          apart ? rank_cache(cache, topology.ranks()) : cache, catalogs, topology,
                          std::move(mesh), {}, levels_);
  }

  const PromptRequest& request_;
  const Profile profile_;
  NullBackend backend_;
  CacheShape cache_;
  std::optional<Model> weights_;
  ModelShape shape_;
  std::optional<KeyLevels> levels_;
  std::vector<AttentionLayer> layers_;  // with levels
};

std::vector<Way> ways_over(const Topology& all) {
  std::vector<Way> ways;
  for (const Topology& topology : parts_of(all)) {
    if (all.devices % topology.devices != 0) {  // a ring alone divides for any number of ranks
      ways.push_back({topology, SpMode::ring});
      continue;
    }
    ways.push_back({topology, {}});
    for (SpMode mode : kSpModes) {
      // usp, tas and torus divide machines; on a single machine they equal ring or ulysses.
      const bool mixed = mode != SpMode::ring && mode != SpMode::ulysses;
      if (topology.ranks() == 1 || (topology.machines == 1 && mixed)) continue;
      ways.push_back({topology, mode});
    }
  }
  return ways;
}

// A candidate, or a candidate with the rule that forbids it.
PromptCandidate attempt(const Planning& planning, const Way& way) {
  try {
    return planning.candidate(way);
  } catch (const Error& error) {
    if (!forbids(error)) throw;
    return {.division = way.division(), .topology = way.topology, .refused = error.what()};
  }
}

[[noreturn]] void refuse(const PromptRequest& request, const Planning& planning,
                         std::span<const Way> ways, std::span<const PromptCandidate> candidates) {
  const auto smallest = std::ranges::min_element(candidates, {}, [](const PromptCandidate& c) {
    return c.bytes.all() > 0 ? c.bytes.all() : std::numeric_limits<double>::infinity();
  });
  if (smallest->bytes.all() == 0) fail(ErrorCode::kUnsupported, "{}", smallest->refused);
  int64_t longest = 0;
  for (size_t i = ways.size(); i-- > 0;) {  // most ranks have most room
    if (candidates[i].bytes.all() > 0)
      longest = std::max(longest, planning.longest(ways[i], longest));
  }
  fail(
      ErrorCode::kResource,
      "a prompt of {} tokens after {} does not fit {} devices of {} GB: the least that a rank "
      "wants is {:.1f} GB ({} on {} ranks); {}",
      request.tokens, request.cached, request.machines, request.memory_gb,
      smallest->bytes.all() / kGb, smallest->name(), smallest->ranks(),
      longest > 0 ? fmt::format("the longest that fits has {} tokens", longest) : "no prompt fits");
}

}  // namespace

std::optional<Approximation> PromptPlan::approximation(const PromptCandidate& candidate) const {
  if (!candidate.shares.thinned()) return {};
  return Approximation{levels.value(), candidate.shares};
}

PromptPlan plan_prompt(const PromptRequest& request) {
  check(request);
  const Topology all = parse_topology(request.machines);
  const Planning planning(request, all);
  PromptPlan plan{.levels = planning.levels()};
  const std::vector<Way> ways = ways_over(all);
  for (const Way& way : ways) plan.candidates.push_back(attempt(planning, way));
  const std::optional<size_t> chosen = choose_candidate(plan.candidates);
  if (!chosen) refuse(request, planning, ways, plan.candidates);
  plan.chosen = *chosen;
  plan.decodes = *chosen;
  for (size_t i = 0; i < plan.candidates.size(); ++i) {
    const PromptCandidate& c = plan.candidates[i];
    const double least = plan.decodes_fastest().token_seconds;
    if (!c.refused.empty() || c.token_seconds == 0) continue;
    if (least == 0 || c.token_seconds < least) plan.decodes = i;
  }
  return plan;
}

double weights_elements(double L, double C, int N) {
  return 4 * L * C * (N - 1);
}

double ring_elements(double L, double dkv, int N) {
  return 2 * L * dkv * (N - 1);
}

double heads_elements(double L, double dq, double dkv, int kv_heads, int N) {
  const double copies = std::max(1.0, static_cast<double>(N) / kv_heads);
  return L * (2 * dq + 2 * copies * dkv) * (N - 1) / N;
}

}  // namespace braid
