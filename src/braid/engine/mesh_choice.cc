#include "braid/engine/mesh_choice.h"

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

std::vector<SequenceMesh> meshes_of(const SequenceParallel& sp, const Topology& topology,
                                    int64_t q_heads) {
  if (sp.mode) return {sequence_mesh(*sp.mode, topology, q_heads, sp.degrees)};
  std::vector<SequenceMesh> meshes;
  for (SpMode mode : kSpModes) {
    for (const SequenceMesh& mesh : sequence_meshes(mode, topology, q_heads, sp.degrees)) {
      if (meshes.empty() || !repeats_another_mode(mesh)) meshes.push_back(mesh);
    }
  }
  if (meshes.empty()) {
    const auto say = [](const std::optional<int>& degree) {
      return degree ? fmt::format("{}", *degree) : "any";
    };
    fail(ErrorCode::kInvalidArgument,
         "sp 'auto': no mode divides {} ranks and {} query heads with torus degree {}, ulysses "
         "degree {}, ring degree {}",
         sizes_of(topology), q_heads, say(sp.degrees.torus), say(sp.degrees.ulysses),
         say(sp.degrees.ring));
  }
  return meshes;
}

}  // namespace braid
