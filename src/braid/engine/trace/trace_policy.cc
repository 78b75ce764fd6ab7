#include "braid/engine/trace/trace_policy.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <span>

#include "braid/backend/null/null_backend.h"
#include "braid/base/error.h"
#include "braid/engine/answer_seconds.h"
#include "braid/engine/batch_cut.h"
#include "braid/engine/context_fit.h"
#include "braid/engine/mesh_choice.h"
#include "braid/engine/prompt_candidate.h"
#include "braid/engine/sequence_ranks.h"
#include "braid/engine/step_fit.h"
#include "braid/engine/strategy_choice.h"
#include "braid/engine/trace/simulated_times.h"
#include "braid/model/model_shape.h"
#include "braid/schedule/simulator.h"
#include "braid/schedule/strategies/registry.h"

namespace braid {
namespace {

constexpr int64_t kMostContext = 1 << 22;  // tokens of a sequence

// Plans and simulates a set's steps.
class SetSimulator {
 public:
  SetSimulator(const TraceCluster& cluster, const Topology& set)
      : set_(set),
        profile_(load_profile(cluster.profile).under_load()),
        shape_(read_model_shape(cluster.config)) {
    cache_.pages = cache_.pages_per_sequence = kMostContext / kPageSize;
    cache_.page_size = kPageSize;
    cache_.activations = profile_.activations;
    cache_.kv_dtype = shape_.weight_dtype;
  }

  const ModelConfig& config() const { return shape_.config; }
  const Topology& set() const { return set_; }
  // Keys of a token on a rank, of `parts` that divide heads, with `copies` more layers.
  int64_t token_bytes(int parts, int64_t copies) const {
    return (config().layers + copies) * bytes_of(cache_.kv_dtype, config().cached_numbers(parts));
  }
  // Tokens of a sequence, at most `wanted` unless 0.
  int64_t context(int64_t wanted) const {
    ModelConfig c = config();
    stretch_context(c, wanted);
    return std::min(kMostContext, wanted > 0 ? wanted : c.context);
  }

  double weight_bytes() const {
    const Program program = shape_.forward({.capacity = {.token = 1, .sequence = 1, .row = 1},
                                            .pages = 1,
                                            .page_size = kPageSize,
                                            .pages_per_sequence = 1});
    double bytes = 0;
    for (const Value& value : program.values) {
      if (value.kind == ValueKind::weight) bytes += static_cast<double>(bytes_of(value.type));
    }
    return bytes;
  }

  // A prompt's chunk on the set, which divides weights.
  double chunk(int64_t tokens, int64_t cached) const {
    return batch_candidate(planner_of(set_, {}, {}), tokens, cached, CostModel(profile_, set_))
        .seconds;
  }
  // A token of each sequence, on a set that divides weights or on a single rank.
  double answers(const Topology& ranks, int64_t sequences, int64_t keys) const {
    const PlannerWith planner = [&](const KernelCatalog& kernels) {
      return planner_of(ranks, {}, {}, &kernels);
    };
    return answer_seconds(backend_.catalog(), planner, sequences, keys + 1,
                          CostModel(profile_, ranks));
  }

  // A prompt whose tokens are divided over the set.
  double prompt(const SequenceMesh& mesh, int64_t tokens, int64_t cached,
                const std::optional<KeyLevels>& levels) const {
    const CostModel cost(profile_, set_);
    return tokens_candidate(planner_of(set_, mesh, levels), *find_strategy("sequence_parallel"),
                            tokens, cached, cost)
        .seconds;
  }
  // The same by the fastest of several meshes.
  double prompt(std::span<const SequenceMesh> meshes, int64_t tokens, int64_t cached) const {
    double least = std::numeric_limits<double>::infinity();
    for (const SequenceMesh& mesh : meshes) {
      least = std::min(least, prompt(mesh, tokens, cached, {}));
    }
    return least;
  }

  // Memory that a rank keeps for a step of a prompt's first `tokens` tokens.
  double activations(const SequenceMesh& mesh, int64_t tokens) const {
    const PlannedForward planned = plan_prompt_step(planner_of(set_, mesh, {}),
                                                    *find_strategy("sequence_parallel"), tokens, 0);
    return kArenasPerPlan * step_bytes(planned).activations;
  }

  // Decodes for sequences with keys in equal parts on all ranks.
  double apart(const SequenceMesh& mesh, int64_t sequences, int64_t keys) const {
    return apart_answer_seconds(planner_of(set_, mesh, {}), sequences, keys,
                                CostModel(profile_, set_));
  }

 private:
  ForwardPlanner planner_of(const Topology& ranks, std::optional<SequenceMesh> mesh,
                            std::optional<KeyLevels> levels,
                            const KernelCatalog* kernels = nullptr) const {
    const std::vector<const KernelCatalog*> catalogs(static_cast<size_t>(ranks.ranks()),
                                                     kernels ? kernels : &backend_.catalog());
    return ForwardPlanner([this](const ForwardShape& s) { return shape_.forward(s); },
                          mesh ? rank_cache(cache_, ranks.ranks()) : cache_, catalogs, ranks,
                          std::move(mesh), {}, std::move(levels));
  }

  const Topology set_;
  const Profile profile_;
  const NullBackend backend_;
  const ModelShape shape_;
  CacheShape cache_;
};

int sets_of(const TraceCluster& cluster, const Topology& set) {
  const Topology all = parse_topology(cluster.machines);
  // Whole machines that divide a rack, or whole racks.
  const int rack = all.machines / all.racks;
  const bool racks =
      set.racks > 1 && set.machines == set.racks * rack && all.racks % set.racks == 0;
  const bool machines = set.racks == 1 && rack % set.machines == 0;
  const bool whole = set.devices == all.devices && (racks || machines);
  const bool part = set.machines == 1 && all.devices % set.devices == 0;
  if (!whole && !part) {
    fail(
        ErrorCode::kInvalidArgument,
        "--set is {}, wanted a part of a machine that divides it, or whole machines that divide {}",
        cluster.set, cluster.machines);
  }
  return all.ranks() / set.ranks();
}

}  // namespace

std::string TracePolicy::name() const {
  switch (kind) {
    case TracePolicyKind::chunked:
      return fmt::format("chunked prefill, {}", step_tokens);
    case TracePolicyKind::sp:
      return "SP, decode on a rank";
    case TracePolicyKind::sp_apart:
      return "SP, decode at the keys";
    case TracePolicyKind::sp_levels:
      return fmt::format("approximate SP, keep {}", fmt::join(keep, ","));
  }
  return "";
}

SimulatedPolicy simulate_policy(const TraceCluster& cluster, const TracePolicy& policy) {
  const Topology set = parse_topology(cluster.set);
  const int sets = sets_of(cluster, set);
  const auto simulator = std::make_shared<const SetSimulator>(cluster, set);
  const int ranks = set.ranks();
  const bool chunked = policy.kind == TracePolicyKind::chunked;
  const bool lanes = policy.kind == TracePolicyKind::sp;

  const int64_t context = simulator->context(cluster.context);
  const auto memory = static_cast<int64_t>(1e9 * cluster.memory_gb);
  ContextRoom room{
      .free = memory,
      .total = memory,
      .weights = static_cast<int64_t>(simulator->weight_bytes()) / (chunked ? ranks : 1),
      .token = simulator->token_bytes(chunked ? ranks : 1, chunked ? 0 : copied_layers(ranks))};
  std::vector<SequenceMesh> meshes;
  int64_t step_tokens = policy.step_tokens;
  if (!chunked) {
    meshes = meshes_of({cluster.sp, {}}, set, simulator->config().Hq);
    const auto bytes = [&](int64_t tokens) { return simulator->activations(meshes[0], tokens); };
    if (step_tokens == 0) {
      const int64_t own = ceil_div(context, int64_t{ranks});
      step_tokens = divided_step(context, ranks, static_cast<double>(step_room(room, own)), bytes);
    }
    room.step = static_cast<int64_t>(bytes(std::max<int64_t>(step_tokens, ranks)));
  }
  if (step_room(room, 2 * kPageSize) < room.step) {
    fail(ErrorCode::kResource,
         "--memory is {} GB: weights take {:.1f} and a step {:.1f}, no room for keys",
         cluster.memory_gb, 1e-9 * static_cast<double>(room.weights),
         1e-9 * static_cast<double>(room.step));
  }
  const int64_t rank_pages = context_that_fits(room, kMostContext, kPageSize) / kPageSize;
  SimulatedPolicy made{.policy = policy, .sets = sets};
  SchedulerConfig& s = made.scheduler;
  s.page_size = kPageSize;
  s.pages = chunked ? rank_pages : rank_pages * ranks;
  // Only ranks with keys of their own bound a sequence below all pages.
  s.max_context = std::min(context, kPageSize * (lanes ? rank_pages : s.pages));
  s.max_running = cluster.max_running;
  s.max_waiting = std::numeric_limits<int64_t>::max();
  s.prompts_alone = !chunked;
  s.groups = chunked ? 1 : ranks;
  if (!chunked && !lanes) s.own_prompt = kOwnPrompt;
  s.max_step_tokens = std::max(step_tokens, kPageSize) + (chunked ? s.max_running : 0);
  s.max_step_tokens = std::max(s.max_step_tokens, s.max_running + kPageSize);

  StepProbes probes;
  if (chunked) {
    probes.prompt = [simulator](int64_t tokens, int64_t cached) {
      return simulator->chunk(tokens, cached);
    };
    probes.decode = [simulator, set](int64_t sequences, int64_t keys) {
      return simulator->answers(set, sequences, keys);
    };
    made.how = fmt::format("weights divided over {}", ranks);
  } else {
    probes.prompt = [simulator, meshes](int64_t tokens, int64_t cached) {
      return simulator->prompt(meshes, std::max<int64_t>(tokens, meshes[0].ranks()), cached);
    };
    made.how =
        fmt::format("{} over {}", cluster.sp ? to_string(*cluster.sp) : "the fastest mode", ranks);
    if (policy.kind == TracePolicyKind::sp_levels) {
      const SequenceMesh ring = sequence_mesh(SpMode::ring, set, simulator->config().Hq, {});
      const KeyLevels levels = key_levels(policy.keep, {}, set);
      probes.thinned = [simulator, ring, levels](int64_t tokens) {
        return simulator->prompt(ring, std::max<int64_t>(tokens, ring.ranks()), 0, levels);
      };
      made.how = fmt::format("thinned ring over {}", ranks);
    }
    if (lanes) {
      probes.decode = [simulator](int64_t sequences, int64_t keys) {
        return simulator->answers(Topology{}, sequences, keys);
      };
    } else {
      probes.decode = [simulator, mesh = meshes[0]](int64_t sequences, int64_t keys) {
        return simulator->apart(mesh, sequences, keys);
      };
    }
  }
  made.times = std::make_unique<SimulatedTimes>(std::move(probes), lanes ? ranks : 1);
  return made;
}

}  // namespace braid
