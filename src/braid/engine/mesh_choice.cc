#include "braid/engine/mesh_choice.h"

#include <algorithm>
#include <limits>

#include "braid/backend/null/null_backend.h"
#include "braid/schedule/simulator.h"

namespace braid {
namespace {

// ring, ulysses or tas have the same groups.
bool repeats_another_mode(const SequenceMesh& mesh) {
  const SpDegrees& d = mesh.degrees;
  const bool hybrid = mesh.mode == SpMode::usp || mesh.mode == SpMode::tas;
  return (hybrid && (d.ulysses == 1 || d.ring == 1)) ||
         (mesh.mode == SpMode::torus && d.torus == 1);
}

}  // namespace

double prompt_seconds(const Plan& plan, int64_t tokens, int64_t cached, const CostModel& cost) {
  const Work work{.extents = {.token = tokens, .sequence = 1, .row = 1},
                  .attended = attended_keys(cached, tokens),
                  .kv_tokens = cached + tokens};
  return simulate(plan, {&work, 1}, cost).seconds;
}

SequenceMesh choose_mesh(const SequenceParallel& sp, const MakeForward& model, int64_t q_heads,
                         const CacheShape& cache, const Topology& topology,
                         const OpScheduler& strategy, const KernelCatalog* like,
                         const CostModel* cost) {
  if (sp.mode) return sequence_mesh(*sp.mode, topology, q_heads, sp.degrees);
  if (cost == nullptr) {
    fail(ErrorCode::kInvalidArgument, "sp 'auto' prices modes: it needs a profile");
  }
  const int P = topology.ranks();
  const int64_t most = cache.pages * cache.page_size;
  const int64_t tokens = sp.tokens > 0 ? std::min(std::max<int64_t>(sp.tokens, P), most) : most;
  NullBackend backend(like);
  const SequenceLayout layout = even_zigzag_layout(tokens, P);
  const ContextKey key = key_for_tokens(layout, layout, 1);
  std::optional<SequenceMesh> best;
  double least = std::numeric_limits<double>::infinity();
  for (SpMode mode : kSpModes) {
    for (const SequenceMesh& mesh : sequence_meshes(mode, topology, q_heads, sp.degrees)) {
      if (best && repeats_another_mode(mesh)) continue;
      const ForwardPlanner planner(
          model, cache, std::vector(static_cast<size_t>(P), &backend.catalog()), topology, mesh);
      const double seconds =
          prompt_seconds(planner.plan_tokens(strategy, layout, layout, key.micro_batches[0], cost),
                         tokens, 0, *cost);
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

}  // namespace braid
