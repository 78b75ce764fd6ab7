#pragma once

#include <algorithm>
#include <functional>
#include <vector>

#include "any_phases.h"
#include "braid/parallel/attention/lower_attention.h"
#include "braid/schedule/plan_schedules.h"
#include "braid/schedule/strategies/registry.h"
#include "unit/schedule/names_catalog.h"

namespace braid {

// One attention over ranks, planned.
struct PlannedAttention : Plan {
  SequenceMesh mesh;
};

struct AttentionPlanCase {
  SpMode mode = SpMode::ring;
  const char* machines = "1x4";
  const char* strategy = "sequence_parallel";
  bool stages = false;  // in one call
  int micro_batches = 1;
  int64_t tokens = 60;
  int64_t text = 0;
  std::vector<int64_t> rows = {};                     // of each rank; empty: even parts of `tokens`
  std::function<void(Program& program)> change = {};  // before it is planned
};

inline PlannedAttention planned_attention(const AttentionPlanCase& c) {
  PlannedAttention made{{}, sequence_mesh(c.mode, parse_topology(c.machines), 8, {})};
  SequenceAttention a{
      .batch = c.micro_batches, .q_heads = 8, .kv_heads = 8, .head_dim = 64, .dtype = DType::bf16};
  a.joint_q = a.joint_kv = c.text;
  a.q = a.kv = c.rows.empty() ? even_layout(c.tokens, made.mesh.ranks(), c.text)
                              : contiguous_layout(c.rows, c.text);
  made.programs = attention_programs(a, made.mesh, {c.stages ? Kernels{&any_phases} : Kernels{}});
  if (c.change) std::ranges::for_each(made.programs, c.change);
  const NamesCatalog catalog;
  PlanRequest request{
      .catalogs = {&catalog}, .micro_batches = {}, .topology = made.mesh.topology, .price = {}};
  for (int mb = 0; mb < c.micro_batches; ++mb) {
    request.micro_batches.push_back({.capacity = {.sequence = 1}});
  }
  plan_schedules(made, *find_strategy(c.strategy), request);
  return made;
}

}  // namespace braid
