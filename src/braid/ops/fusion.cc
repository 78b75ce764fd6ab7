#include "braid/ops/fusion.h"

#include <algorithm>

#include "braid/ops/linear.h"
#include "braid/ops/norm.h"
#include "braid/ops/rope_append.h"

namespace braid {
namespace {

std::optional<Op> make_add_norm(const Program&, std::span<const Op> run) {
  const Op& add = run[0];
  const Op& norm = run[1];
  if (norm.inputs[0] != add.outputs[0]) return std::nullopt;
  return Op{&ops::kAddRmsNorm,
            norm.attrs,
            {add.inputs[0], add.inputs[1], norm.inputs[1]},
            {add.outputs[0], norm.outputs[0]},
            norm.scope,
            norm.tag};
}

std::optional<Op> make_gated_linear(const Program&, std::span<const Op> run) {
  const Op& linear = run[0];
  const Op& gated = run[1];
  if (linear.attrs.as<ops::LinearAttrs>().n != 2 || gated.inputs != linear.outputs) {
    return std::nullopt;
  }
  return Op{&ops::kGatedLinear, gated.attrs, linear.inputs, gated.outputs, gated.scope, gated.tag};
}

// rope(q), rope(k), kv_append, with rms_norm(q), rms_norm(k) before them where heads are
// normalized.
std::optional<Op> make_rope_append(const Program&, std::span<const Op> run) {
  const bool normed = run.size() == 5;
  const Op& q_rope = run[normed ? 2 : 0];
  const Op& k_rope = run[normed ? 3 : 1];
  const Op& append = run.back();
  if (q_rope.attrs != k_rope.attrs || append.inputs[0] != k_rope.outputs[0]) return std::nullopt;
  ops::RopeAppendAttrs attrs{.rope = q_rope.attrs.as<ops::RopeAttrs>()};
  ValueId q = q_rope.inputs[0], k = k_rope.inputs[0], q_norm = kNoValue, k_norm = kNoValue;
  if (normed) {
    const auto& norm = run[0].attrs.as<ops::RmsNormAttrs>();
    if (run[0].outputs[0] != q || run[1].outputs[0] != k || run[0].attrs != run[1].attrs ||
        norm.group != attrs.rope.head_dim) {
      return std::nullopt;
    }
    attrs.eps = norm.eps;
    q = run[0].inputs[0], q_norm = run[0].inputs[1];
    k = run[1].inputs[0], k_norm = run[1].inputs[1];
  }
  return Op{&ops::kRopeAppend,
            Attrs::of(attrs),
            {q, k, append.inputs[1], q_rope.inputs[1], q_rope.inputs[2], append.inputs[2],
             append.inputs[3], append.inputs[4], q_norm, k_norm},
            {q_rope.outputs[0]},
            append.scope,
            append.tag};
}

bool matches(const Fusion& fusion, std::span<const Op> ops) {
  return ops.size() >= fusion.pattern.size() &&
         std::equal(fusion.pattern.begin(), fusion.pattern.end(), ops.begin(),
                    [](std::string_view kind, const Op& op) { return op.def->kind == kind; });
}

// Readers of each value, the program's outputs counted as one each.
std::vector<int> count_readers(const Program& program) {
  std::vector<int> readers(program.values.size());
  const auto count = [&](ValueId id) {
    if (id != kNoValue) ++readers[static_cast<size_t>(id)];
  };
  for (const Op& op : program.ops) std::for_each(op.inputs.begin(), op.inputs.end(), count);
  std::for_each(program.outputs.begin(), program.outputs.end(), count);
  return readers;
}

// True when every output of the run that the fused op does not make is read inside the run alone.
bool hides_only_inner_values(const Op& fused, std::span<const Op> run,
                             const std::vector<int>& readers) {
  for (const Op& op : run) {
    for (ValueId id : op.outputs) {
      if (std::ranges::count(fused.outputs, id)) continue;
      int inside = 0;
      for (const Op& reader : run) {
        inside += static_cast<int>(std::ranges::count(reader.inputs, id));
      }
      if (inside != readers[static_cast<size_t>(id)]) return false;
    }
  }
  return true;
}

}  // namespace

const std::vector<Fusion>& fusions() {
  static const std::vector<Fusion> kFusions = {
      {"add_rms_norm", {"add", "rms_norm"}, make_add_norm},
      {"gated_linear", {"linear", "gated"}, make_gated_linear},
      {"rope_append", {"rms_norm", "rms_norm", "rope", "rope", "kv_append"}, make_rope_append},
      {"rope_append", {"rope", "rope", "kv_append"}, make_rope_append},
  };
  return kFusions;
}

Program fuse(const Program& program, std::span<const Fusion> table) {
  const std::vector<int> readers = count_readers(program);
  Program fused = program;
  fused.ops.clear();
  for (size_t i = 0; i < program.ops.size();) {
    const std::span<const Op> rest = std::span(program.ops).subspan(i);
    size_t taken = 0;
    for (const Fusion& fusion : table) {
      if (!matches(fusion, rest)) continue;
      const std::span<const Op> run = rest.first(fusion.pattern.size());
      const std::optional<Op> op = fusion.make(program, run);
      if (!op || !hides_only_inner_values(*op, run, readers)) continue;
      fused.ops.push_back(*op);
      taken = run.size();
      break;
    }
    if (taken == 0) {
      fused.ops.push_back(program.ops[i]);
      taken = 1;
    }
    i += taken;
  }
  verify(fused);
  return fused;
}

}  // namespace braid
