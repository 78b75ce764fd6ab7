#include "braid/ops/rope_sequence.h"

#include <array>
#include <numeric>

#include "braid/ops/norm.h"
#include "braid/ops/rules.h"
#include "braid/ops/sequence.h"

namespace braid::ops {
namespace {

enum Input : size_t { kQ, kK, kV, kPositions, kFactors, kQNorm, kKNorm };

std::vector<ValueType> infer(const Attrs& attrs, TypeList in) {
  const RopeAttrs& rope = attrs.as<RopeAppendAttrs>().rope;
  std::vector<ValueType> out;
  for (const size_t x : {kQ, kK, kV}) {
    ValueType turned = in[x];
    if (x != kV) {
      const std::array rope_in = {in[x], in[kPositions], in[kFactors]};
      turned = kRope.infer(Attrs::of(rope), rope_in)[0];
    }
    out.push_back(kToSequence.infer(Attrs::of(ToSequenceAttrs{rope.head_dim}), {&turned, 1})[0]);
  }
  return out;
}

Cost cost(const Attrs&, TypeList in, TypeList, const Work& work) {
  return elementwise_cost(in.first(3), in.first(3), work, 3);
}

ShardRule shard(const Attrs&, TypeList in, std::span<const Placement>, int) {
  return replicate_all(in.size(), 3);
}

// A cache of a single page is a sequence, and token t's slot is t.
void reference(const OpCall& call) {
  const TensorView &q = call.in[kQ], &y = call.out[0];
  std::vector<int32_t> rows(q.shape[0]);
  std::iota(rows.begin(), rows.end(), 0);
  const TensorView slots =
      make_view(reinterpret_cast<std::byte*>(rows.data()), DType::i32, {q.shape[0]});
  const TensorView in[] = {q,     call.in[kK], call.in[kV], call.in[kPositions], call.in[kFactors],
                           slots, call.out[1], call.out[2], call.in[kQNorm],     call.in[kKNorm]};
  const TensorView turned = make_view(y.data, y.dtype, q.shape);
  kRopeAppend.reference({call.op, in, {&turned, 1}, call.axis, call.part});
}

// rope(q), rope(k), to_sequence of both and of v, preceded by rms_norm(q), rms_norm(k) for models
// with normalized heads.
std::optional<Op> make(const Program& program, std::span<const Op> run) {
  const bool normed = run.size() == 7;
  const Op* const ropes = &run[normed ? 2 : 0];
  const Op* const rows = ropes + 2;
  if (ropes[0].attrs != ropes[1].attrs || ropes[0].inputs[1] != ropes[1].inputs[1] ||
      ropes[0].inputs[2] != ropes[1].inputs[2]) {
    return std::nullopt;
  }
  RopeAppendAttrs attrs{.rope = ropes[0].attrs.as<RopeAttrs>()};
  const ValueId v = rows[2].inputs[0];
  ValueId x[] = {ropes[0].inputs[0], ropes[1].inputs[0]};
  ValueId norms[] = {kNoValue, kNoValue};
  for (size_t i = 0; i < 2; ++i) {
    if (rows[i].inputs[0] != ropes[i].outputs[0]) return std::nullopt;
    if (!normed) continue;
    const auto& norm = run[i].attrs.as<RmsNormAttrs>();
    if (run[i].outputs[0] != x[i] || run[i].attrs != run[0].attrs ||
        norm.group != attrs.rope.head_dim) {
      return std::nullopt;
    }
    attrs.eps = norm.eps;
    x[i] = run[i].inputs[0], norms[i] = run[i].inputs[1];
  }
  const auto dtype = [&](ValueId id) { return program.value(id).type.dtype; };
  for (size_t i = 0; i < 3; ++i) {
    if (dtype(i < 2 ? x[i] : v) != dtype(x[0]) || dtype(rows[i].outputs[0]) != dtype(x[0]) ||
        rows[i].attrs.as<ToSequenceAttrs>().head_dim != attrs.rope.head_dim) {
      return std::nullopt;
    }
  }
  return Op{&kRopeSequence,
            Attrs::of(attrs),
            {x[0], x[1], v, ropes[0].inputs[1], ropes[0].inputs[2], norms[0], norms[1]},
            {rows[0].outputs[0], rows[1].outputs[0], rows[2].outputs[0]},
            rows[2].scope,
            rows[2].tag};
}

}  // namespace

const OpDef kRopeSequence = {.kind = "rope_sequence",
                             .infer = infer,
                             .mutated_inputs = {},
                             .cost = cost,
                             .shard = shard,
                             .reference = reference};

const std::vector<Fusion>& rope_sequence_fusions() {
  constexpr std::string_view kRows = "to_sequence";
  static const std::vector<Fusion> kFusions = {
      {"rope_sequence", {"rms_norm", "rms_norm", "rope", "rope", kRows, kRows, kRows}, make},
      {"rope_sequence", {"rope", "rope", kRows, kRows, kRows}, make}};
  return kFusions;
}

}  // namespace braid::ops
