#include "braid/engine/step_planners.h"

#include <algorithm>

#include "braid/backend/null/null_backend.h"
#include "braid/engine/data_ranks.h"
#include "braid/engine/divided_keys.h"
#include "braid/engine/link_topology.h"
#include "braid/engine/prompt_candidate.h"
#include "braid/engine/sequence_ranks.h"
#include "braid/engine/tensor_ranks.h"
#include "braid/schedule/strategies/registry.h"

namespace braid {
namespace {

StrategyChoice::Strategies candidates(const RunnerConfig& config) {
  if (config.strategy) return {config.strategy};
  if (config.schedule != "auto") return {find_strategy(config.schedule)};
  if (config.tp == 1) return {find_strategy("sequential")};  // there is nothing to hide
  StrategyChoice::Strategies all;
  const ProgramKind kind = config.sp       ? ProgramKind::sequence
                           : config.ep > 1 ? ProgramKind::experts
                                           : ProgramKind::any;
  for (const std::string& name : strategy_names(kind)) all.push_back(find_strategy(name));
  return all;
}

MakeForward forward_of(const Model& model) {
  return [&model](const ForwardShape& shape) { return model.forward(shape); };
}

std::optional<CostModel> cost_of(const RunnerConfig& c) {
  if (!c.profile) return {};
  return CostModel(*c.profile, topology_of(c));
}

void check_levels(const Model& model, const RunnerConfig& c) {
  check_keep(c.thinning, c.sp, topology_of(c));
  if (c.dp > 1) {
    fail(ErrorCode::kUnsupported, "--keep with --dp {}: ranks with sequences of their own keep all",
         c.dp);
  }
  if (model.config().latent && c.sp && c.tp > 1) return;  // refused for its divided tokens
  require_far_keys(model.config(), std::min(model.config().context,
                                            c.cache.pages_per_sequence * c.cache.page_size));
}

RankDegrees degrees_of(const RunnerConfig& config) {
  return {.tp = config.tp / config.dp,
          .ep = config.ep,
          .groups = config.dp,
          .expert_memory = config.expert_memory};
}

std::optional<KeyLevels> planned_levels(const RunnerConfig& c, bool divides_tokens) {
  if (!c.thinning) return {};
  return divides_tokens ? levels_of(c.thinning, topology_of(c)) : levels_of(c.thinning, {});
}

}  // namespace

void check_keep(const Thinning& thinning, const std::optional<SequenceParallel>& sp,
                const Topology& topology) {
  if (!thinning) return;
  const bool divides = sp && topology.ranks() > 1;
  if (divides && sp->mode && sp->mode != SpMode::ring) {
    fail(ErrorCode::kInvalidArgument,
         "--keep with --sp {}: wanted --sp ring or auto, or without --sp ranks that have all "
         "tokens",
         to_string(*sp->mode));
  }
  if (divides && (sp->degrees.torus.value_or(1) > 1 || sp->degrees.ulysses.value_or(1) > 1)) {
    fail(ErrorCode::kInvalidArgument,
         "--keep with torus degree {}, ulysses degree {}: far keys go round a ring of all ranks",
         sp->degrees.torus.value_or(1), sp->degrees.ulysses.value_or(1));
  }
  divides ? levels_of(thinning, topology) : levels_of(thinning, {});
}

Topology topology_of(const RunnerConfig& config) {
  Topology topology = braid::topology_of(config.links, config.tp);
  topology.mapped = topology.mapped && config.mapped;
  return topology;
}

bool needs_profile(const RunnerConfig& config) {
  const bool strategies =
      !config.strategy && config.schedule == "auto" && candidates(config).size() > 1;
  return config.tp > 1 && (strategies || (config.sp && !config.sp->mode));
}

std::vector<SequenceMesh> meshes_of(const Model& model, const RunnerConfig& c) {
  if (c.thinning) check_levels(model, c);
  if (!c.sp || c.tp == 1) return {};
  c.links.validate(c.tp);
  const Topology all = topology_of(c);
  std::vector<SequenceMesh> meshes;
  const SpRequest& pinned = c.sp->degrees;
  const bool any = !c.sp->mode && !pinned.torus && !pinned.ulysses && !pinned.ring;
  const auto add = [&](const Topology& part) {
    for (SequenceMesh& mesh : meshes_of(*c.sp, part, model.config().Hq)) {
      // Mixed modes are for several machines. In one they save at most 1.4%, and are two thirds of
      // the planning of 8 ranks.
      const bool mixed = mesh.mode != SpMode::ring && mesh.mode != SpMode::ulysses;
      if (!any || part.machines > 1 || !mixed) meshes.push_back(std::move(mesh));
    }
  };
  // A job's GPUs take memory from heaps that must be freed alike; ranks without a part free arenas
  // before the others.
  const bool heaps = c.job != nullptr && c.device.cuda;
  if (!heaps && any) {
    for (const Topology& part : parts_of(all)) {
      if (part.ranks() == 1 || part.ranks() == all.ranks()) continue;
      if (all.devices % part.devices == 0) {
        add(part);
      } else {
        meshes.push_back(sequence_mesh(SpMode::ring, part, model.config().Hq));
      }
    }
  }
  add(all);
  // Parts of a prompt are dealt to ranks in equal numbers.
  const std::optional<KeyLevels> levels = planned_levels(c, true);
  std::erase_if(meshes, [&](const SequenceMesh& mesh) {
    return levels && (mesh.mode != SpMode::ring || levels->groups.back() % mesh.ranks() != 0);
  });
  return meshes;
}

int64_t prompt_step_bytes(const Model& model, const RunnerConfig& c, int64_t tokens,
                          const KernelCatalog* kernels) {
  const NullBackend backend(kernels);
  const std::optional<KeyLevels> levels = planned_levels(c, true);
  CacheShape cache = c.cache;
  cache.pages = cache.pages_per_sequence = ceil_div(tokens, cache.page_size);
  double most = 0;
  for (const SequenceMesh& mesh : meshes_of(model, c)) {
    if (mesh.ranks() < c.tp) continue;
    const std::vector<const KernelCatalog*> catalogs(static_cast<size_t>(c.tp), &backend.catalog());
    const ForwardPlanner planner(forward_of(model), cache, catalogs, mesh.topology, mesh, {},
                                 levels);
    const PlannedForward planned =
        plan_prompt_step(planner, *find_strategy("sequence_parallel"), tokens, 0);
    most = std::max(most, step_bytes(planned).activations);
  }
  return static_cast<int64_t>(most);
}

std::vector<Mesh> over_all(const std::vector<SequenceMesh>& meshes, int ranks) {
  std::vector<Mesh> made;
  int last = ranks;
  for (const SequenceMesh& mesh : meshes) {
    if (mesh.ranks() == ranks) {
      made.push_back(mesh.mesh);
      continue;
    }
    std::vector<Mesh::Axis> axes{{"part", static_cast<int>(ceil_div(ranks, mesh.ranks()))}};
    if (mesh.ranks() != last) made.push_back(Mesh({axes[0], {"world", mesh.ranks()}}));
    last = mesh.ranks();
    std::ranges::copy(mesh.mesh.axes(), std::back_inserter(axes));
    made.emplace_back(std::move(axes));
  }
  return made;
}

std::unique_ptr<StepPlanner> make_step_planner(const Model& model, const RunnerConfig& c,
                                               const std::vector<SequenceMesh>& meshes,
                                               World& world) {
  StrategyChoice::Strategies strategies = candidates(c);
  const std::optional<CostModel> cost = cost_of(c);
  if (strategies.size() > 1 && !cost) {
    fail(ErrorCode::kInvalidArgument, "schedule 'auto' prices strategies: it needs a profile");
  }
  const std::optional<KeyLevels> levels = planned_levels(c, !meshes.empty());
  if (!meshes.empty()) {
    if (!c.sp->mode && !cost) {
      fail(ErrorCode::kInvalidArgument, "sp 'auto' prices modes: it needs a profile");
    }
    SequenceParallel sp = *c.sp;
    const int64_t slots = c.cache.pages * c.cache.page_size;
    sp.apart |= keys_apart(divided_keys(model.config(), c.cache.kv_dtype, slots, c.tp));
    return std::make_unique<SequenceRanks>(forward_of(model), c.cache, meshes, sp, levels,
                                           std::move(strategies), world, cost);
  }
  const RankDegrees degrees = degrees_of(c);
  if (c.dp > 1) {
    return std::make_unique<DataRanks>(forward_of(model), c.cache, topology_of(c), degrees,
                                       std::move(strategies), world, cost);
  }
  return std::make_unique<TensorRanks>(forward_of(model), c.cache, topology_of(c), degrees, levels,
                                       std::move(strategies), world, cost);
}

}  // namespace braid
