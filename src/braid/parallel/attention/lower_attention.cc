#include "braid/parallel/attention/lower_attention.h"

#include "braid/parallel/attention/cut_phases.h"
#include "braid/parallel/attention/pieces.h"
#include "braid/parallel/attention/queries.h"

namespace braid {

ValueType q_type(const SequenceAttention& a) {
  return {a.dtype,
          {a.batch, std::max<int64_t>(a.q.max_rows(), 1), a.q_heads, a.head_dim},
          BatchAxis::sequence};
}

ValueType kv_type(const SequenceAttention& a) {
  return {a.dtype,
          {a.batch, std::max<int64_t>(a.kv.max_rows(), 1), a.kv_heads, a.head_dim},
          BatchAxis::sequence};
}

AttentionOutputs lower_attention(std::span<Builder> builders, const SequenceAttention& attention,
                                 const SequenceMesh& mesh, const AttentionInputs& inputs,
                                 const AttentionDivision& division) {
  if (attention.levels) {
    // On a machine keys come faster than a state is written and read again.
    return lower_levels(builders, attention, inputs, mesh.topology.machines > 1);
  }
  if (division.queries && queries_move(attention, mesh)) {
    return lower_queries(builders, attention, inputs, division);
  }
  AttentionPieces pieces(builders, attention, mesh, inputs, division);
  switch (mesh.mode) {
    case SpMode::ulysses:
      return lower_ulysses(pieces);
    case SpMode::ring:
    case SpMode::usp:
    case SpMode::tas:
    case SpMode::torus:
      return lower_torus(pieces);
  }
  return {};
}

std::vector<Program> attention_programs(const SequenceAttention& a, const SequenceMesh& mesh,
                                        const AttentionDivision& division) {
  std::vector<Builder> builders;
  AttentionInputs in;
  for (int x = 0; x < mesh.ranks(); ++x) {
    Builder& b = builders.emplace_back(fmt::format("{}_attention", to_string(mesh.mode)),
                                       Extents{.sequence = a.batch});
    in.q = b.input("q", q_type(a));
    in.k = b.input("k", kv_type(a));
    in.v = b.input("v", kv_type(a));
    ValueType joint = q_type(a);
    joint.shape[1] = a.joint_q;
    if (a.joint_q > 0) in.joint_q = b.input("joint_q", joint);
    joint = kv_type(a);
    joint.shape[1] = a.joint_kv;
    if (a.joint_kv > 0) {
      in.joint_k = b.input("joint_k", joint);
      in.joint_v = b.input("joint_v", joint);
    }
  }
  if (a.levels && a.levels->importance == Importance::previous) {
    SequenceAttention dense = a;
    dense.levels = keeping_all(*a.levels);
    in.scores = lower_attention(builders, dense, mesh, in, division).scores;
    in.scores = lower_attention(builders, a, mesh, in, division).scores;
  }
  const AttentionOutputs out = lower_attention(builders, a, mesh, in, division);
  std::vector<Program> programs;
  for (Builder& b : builders) {
    programs.push_back(b.finish(out.joint_o == kNoValue
                                    ? std::vector<ValueId>{out.o}
                                    : std::vector<ValueId>{out.o, out.joint_o}));
  }
  std::vector<Program*> ranks;
  for (Program& program : programs) ranks.push_back(&program);
  if (cut_phases(ranks, division.kernels) && division.most_parts > 1) {
    AttentionDivision whole = division;
    whole.most_parts = 1;
    return attention_programs(a, mesh, whole);
  }
  for (const Program& program : programs) verify(program);
  return programs;
}

}  // namespace braid
