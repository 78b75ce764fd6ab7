#include "braid/engine/prompt_plan.h"

#include <algorithm>
#include <limits>

#include "braid/backend/null/null_backend.h"
#include "braid/base/math.h"
#include "braid/engine/batch_cut.h"
#include "braid/engine/kv_dtype.h"
#include "braid/engine/limits.h"
#include "braid/engine/sequence_ranks.h"
#include "braid/model/model.h"
#include "braid/model/model_shape.h"
#include "braid/schedule/simulator.h"
#include "braid/schedule/strategies/registry.h"

namespace braid {
namespace {

constexpr double kGb = 1e9;

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

// Shared by all candidates.
class Planning {
 public:
  explicit Planning(const PromptRequest& request)
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
    cache_.pages = cache_.pages_per_sequence = ceil_div(request.cached + request.tokens, kPageSize);
    cache_.page_size = kPageSize;
    cache_.activations = profile_.activations;
    cache_.kv_dtype =
        choose_kv_dtype({}, weights_ ? weights_->default_kv_dtype() : shape_.weight_dtype,
                        cache_.activations == DType::bf16, false);
  }

  const ModelConfig& config() const { return weights_ ? weights_->config() : shape_.config; }

  PromptCandidate weights(const Topology& topology) const {
    const CostModel cost(profile_, topology);
    const ForwardPlanner planner = planner_of(topology, {}, false);
    PromptCandidate made = in_steps(kRankTokens, [&](int64_t tokens, int64_t cached) {
      return batch(planner, tokens, cached, cost);
    });
    made.token_seconds = batch(planner, 1, all_tokens() - 1, cost).seconds;
    return made;
  }

  PromptCandidate tokens(const SequenceMesh& mesh) const {
    const CostModel cost(profile_, mesh.topology);
    const bool apart =
        keys_apart(cache_.pages * cache_.page_size, cache_.activations == DType::bf16);
    const ForwardPlanner planner = planner_of(mesh.topology, mesh, apart);
    PromptCandidate made = in_steps(kRankTokens * mesh.ranks(), [&](int64_t n, int64_t cached) {
      return tokens_candidate(planner, *find_strategy("sequence_parallel"), n, cached, cost);
    });
    try {
      made.token_seconds =
          apart_seconds(planner_of(mesh.topology, mesh, true), 1, all_tokens(), cost);
    } catch (const Error& error) {
      if (!forbids(error)) throw;
    }
    return made;
  }

 private:
  int64_t all_tokens() const { return request_.cached + request_.tokens; }

  // The prompt in steps of `most` tokens, each made from its tokens and the tokens before.
  template <class Make>
  PromptCandidate in_steps(int64_t most, const Make& make) const {
    PromptCandidate made = make(std::min(most, request_.tokens), request_.cached);
    for (int64_t done = most; done < request_.tokens; done += most) {
      made.add(make(std::min(most, request_.tokens - done), request_.cached + done));
    }
    if (made.rank_bytes > request_.memory_gb * kGb) {
      made.refused = fmt::format("wants {:.1f} GB a rank, there are {:.1f}", made.rank_bytes / kGb,
                                 request_.memory_gb);
    }
    return made;
  }

  // A step of the undivided sequence, by the strategy with the least time.
  PromptCandidate batch(const ForwardPlanner& planner, int64_t tokens, int64_t cached,
                        const CostModel& cost) const {
    PromptCandidate made{
        .division = planner.ranks() > 1 ? PromptDivision::weights : PromptDivision::whole,
        .topology = planner.topology()};
    std::vector<int32_t> pages(cache_.pages);
    const std::vector<int32_t> ids(tokens);
    Batch batch(kPageSize);
    batch.add(ids, cached, pages, 1);
    StrategyChoice::Strategies strategies;
    for (const std::string& name : strategy_names()) strategies.push_back(find_strategy(name));
    StrategyChoice choice(planner, cost, strategies);
    const auto& strategy = *strategies[choice.choose(batch)];
    BatchCut cut;
    const PlannedForward planned = planner.plan(strategy, batch, cut, &cost);
    made.strategy = strategy.name();
    measure(made, planned, simulate(planned, cut.works(), cost));
    return made;
  }

  ForwardPlanner planner_of(const Topology& topology, std::optional<SequenceMesh> mesh,
                            bool apart) const {
    const auto forward = [this](const ForwardShape& s) {
      return weights_ ? weights_->forward(s) : shape_.forward(s);
    };
    const std::vector<const KernelCatalog*> catalogs(topology.ranks(), &backend_.catalog());
    return ForwardPlanner(forward, apart ? rank_cache(cache_, topology.ranks()) : cache_, catalogs,
                          topology, std::move(mesh));
  }

  const PromptRequest& request_;
  const Profile profile_;
  NullBackend backend_;
  CacheShape cache_;
  std::optional<Model> weights_;
  ModelShape shape_;
};

// A candidate, or a candidate with the rule that forbids it.
template <class Make>
PromptCandidate attempt(PromptDivision division, const Topology& topology, const Make& make) {
  try {
    return make();
  } catch (const Error& error) {
    if (!forbids(error)) throw;
    return {.division = division, .topology = topology, .refused = error.what()};
  }
}

void add_modes(std::vector<PromptCandidate>& found, const Planning& planning,
               const Topology& topology) {
  for (SpMode mode : kSpModes) {
    // usp, tas and torus divide machines; on a single machine they equal ring or ulysses.
    if (topology.machines == 1 && mode != SpMode::ring && mode != SpMode::ulysses) continue;
    found.push_back(attempt(PromptDivision::tokens, topology, [&] {
      return planning.tokens(sequence_mesh(mode, topology, planning.config().Hq, {}));
    }));
  }
}

}  // namespace

PromptPlan plan_prompt(const PromptRequest& request) {
  check(request);
  const Planning planning(request);
  PromptPlan plan;
  for (const Topology& topology : parts_of(parse_topology(request.machines))) {
    const auto division = topology.ranks() > 1 ? PromptDivision::weights : PromptDivision::whole;
    plan.candidates.push_back(
        attempt(division, topology, [&] { return planning.weights(topology); }));
    if (topology.ranks() > 1) add_modes(plan.candidates, planning, topology);
  }
  const std::optional<size_t> chosen = choose_candidate(plan.candidates);
  if (!chosen) {
    const auto smallest = std::ranges::min_element(plan.candidates, {}, [](const auto& c) {
      return c.rank_bytes > 0 ? c.rank_bytes : std::numeric_limits<double>::infinity();
    });
    fail(ErrorCode::kResource,
         "a prompt of {} tokens after {} does not fit {} devices of {} GB: the least that a rank "
         "wants is {:.1f} GB ({} on {} ranks)",
         request.tokens, request.cached, request.machines, request.memory_gb,
         smallest->rank_bytes / kGb, smallest->name(), smallest->ranks());
  }
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
