#include "braid/ops/fusion.h"

#include <algorithm>
#include <deque>
#include <map>
#include <mutex>

#include "braid/ops/comm.h"
#include "braid/ops/expert_tiles.h"
#include "braid/ops/fused_comm.h"
#include "braid/ops/gated_push.h"
#include "braid/ops/linear.h"
#include "braid/ops/norm.h"
#include "braid/ops/norm_linear.h"
#include "braid/ops/rope_append.h"

namespace braid {
namespace {

std::optional<Op> make_add_norm(const Program& program, std::span<const Op> run) {
  const Op& add = run[0];
  const Op& norm = run[1];
  // The fused op normalizes whole rows.
  const int64_t cols = program.value(norm.inputs[0]).type.shape[-1];
  if (norm.inputs[0] != add.outputs[0] || norm.attrs.as<ops::RmsNormAttrs>().group != cols) {
    return std::nullopt;
  }
  return Op{&ops::kAddRmsNorm,
            norm.attrs,
            {add.inputs[0], add.inputs[1], norm.inputs[1]},
            {add.outputs[0], norm.outputs[0]},
            norm.scope,
            norm.tag};
}

std::optional<Op> make_gated_linear(const Program& program, std::span<const Op> run) {
  const Op& linear = run[0];
  const Op& gated = run[1];
  const auto& attrs = linear.attrs.as<ops::LinearAttrs>();
  if (attrs.n != 2 || gated.inputs != linear.outputs ||
      attrs.dtype != program.value(linear.inputs[0]).type.dtype) {
    return std::nullopt;
  }
  return Op{&ops::kGatedLinear, gated.attrs, linear.inputs, gated.outputs, gated.scope, gated.tag};
}

// rope(q), rope(k), kv_append, preceded by rms_norm(q), rms_norm(k) for models with normalized
// heads.
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

std::optional<Op> make_linear_all_reduce(const Program&, std::span<const Op> run) {
  const Op& linear = run[0];
  const Op& reduce = run[1];
  const auto& attrs = linear.attrs.as<ops::LinearAttrs>();
  if (attrs.n != 1 || reduce.inputs != linear.outputs) return std::nullopt;
  const auto& comm = reduce.attrs.as<ops::CommAttrs>();
  return Op{&ops::kLinearAllReduce,
            Attrs::of(ops::LinearAllReduceAttrs{comm.axis, comm.ranks, attrs.bias_elsewhere,
                                                attrs.dtype}),
            linear.inputs,
            reduce.outputs,
            linear.scope,
            linear.tag};
}

// The fused op for a reduction, an addition to the residual and a norm. The summands are
// outputs[0] of `reduce` and the f32 residual; the new residual is f32. The reduction keeps the
// dtype of its input.
std::optional<Op> reduce_norm(const Program& program, const OpDef& def, const Op& reduce,
                              const Op& norm, ValueId normalized) {
  const ValueId sum = reduce.outputs[0];
  const bool first = norm.inputs[0] == sum;
  const ValueId residual = norm.inputs[first ? 1 : 0];
  if (residual == sum || norm.inputs[first ? 0 : 1] != sum) return std::nullopt;
  for (const ValueId id : {residual, norm.outputs[0]}) {
    if (program.value(id).type.dtype != DType::f32) return std::nullopt;
  }
  const auto& comm = reduce.attrs.as<ops::CommAttrs>();
  const auto& attrs = norm.attrs.as<ops::RmsNormAttrs>();
  if (program.value(reduce.inputs[0]).type.dtype != attrs.dtype) return std::nullopt;
  return Op{&def,
            Attrs::of(ops::ReduceNormAttrs{comm.axis, comm.ranks, attrs.eps, attrs.dtype}),
            {reduce.inputs[0], residual, norm.inputs[2]},
            {norm.outputs[0], normalized},
            norm.scope,
            norm.tag};
}

std::optional<Op> make_reduce_norm(const Program& program, std::span<const Op> run) {
  return reduce_norm(program, ops::kAllReduceAddRmsNorm, run[0], run[1], run[1].outputs[1]);
}

std::optional<Op> make_scatter_norm_gather(const Program& program, std::span<const Op> run) {
  const auto& from = run[0].attrs.as<ops::CommAttrs>();
  const auto& to = run[2].attrs.as<ops::CommAttrs>();
  if (run[2].inputs[0] != run[1].outputs[1] || to.dim != 0 || to.axis != from.axis) {
    return std::nullopt;
  }
  return reduce_norm(program, ops::kReduceScatterAddRmsNormAllGather, run[0], run[1],
                     run[2].outputs[0]);
}

// A norm over the f32 residual stream with a bf16 summand, and the following linear or
// gated_linear. The fused op rounds its operands, so networks without a batch axis do not take it.
std::optional<Op> make_norm_linear(const Program& program, std::span<const Op> run) {
  const Op &norm = run[0], &linear = run[1];
  const bool adds = norm.def == &ops::kAddRmsNorm;
  const ValueType& a = program.value(norm.inputs[0]).type;
  if (a.axis == BatchAxis::none || a.shape[0] > kFewTokens ||
      linear.inputs[0] != norm.outputs.back())
    return std::nullopt;
  if (a.dtype != DType::f32) return std::nullopt;
  if (adds && program.value(norm.inputs[1]).type.dtype != DType::bf16) return std::nullopt;
  ops::NormLinearAttrs attrs{.norm = norm.attrs.as<ops::RmsNormAttrs>()};
  if (attrs.norm.group != a.shape[1]) return std::nullopt;
  if (linear.def == &ops::kGatedLinear) {
    const auto dtype_of = [&](size_t i) { return program.value(linear.inputs[i]).type.dtype; };
    if (dtype_of(1) != dtype_of(2)) return std::nullopt;
    attrs.gated = true;
    attrs.activation = linear.attrs.as<ops::GatedAttrs>().activation;
    attrs.linear = {.n = 2, .dtype = attrs.norm.dtype};
  } else {
    attrs.linear = linear.attrs.as<ops::LinearAttrs>();
  }
  Op op{&ops::kNormLinear,
        Attrs::of(attrs),
        {norm.inputs[0], adds ? norm.inputs[1] : kNoValue, norm.inputs[adds ? 2 : 1]},
        {},
        linear.scope,
        linear.tag};
  op.inputs.insert(op.inputs.end(), linear.inputs.begin() + 1, linear.inputs.end());
  if (adds) op.outputs.push_back(norm.outputs[0]);
  op.outputs.insert(op.outputs.end(), linear.outputs.begin(), linear.outputs.end());
  return op;
}

std::optional<Op> make_few_token_reduce_norm(const Program& program, std::span<const Op> run) {
  if (program.value(run[0].inputs[0]).type.shape[0] > kFewTokens) return std::nullopt;
  return make_reduce_norm(program, run);
}

bool matches(const Fusion& fusion, std::span<const Op> ops) {
  return ops.size() >= fusion.pattern.size() &&
         std::equal(fusion.pattern.begin(), fusion.pattern.end(), ops.begin(),
                    [](std::string_view kind, const Op& op) { return op.def->kind == kind; });
}

// True if no op outside the run reads an output missing from the fused op.
bool hides_only_inner_values(const Op& fused, std::span<const Op> run,
                             const std::vector<int>& readers) {
  for (const Op& op : run) {
    for (ValueId id : op.outputs) {
      if (std::ranges::count(fused.outputs, id)) continue;
      int inside = 0;
      for (const Op& reader : run) {
        inside += static_cast<int>(std::ranges::count(reader.inputs, id));
      }
      if (inside != readers[id]) return false;
    }
  }
  return true;
}

// The replacements by name, and strings referenced by libraries' replacements.
struct Replacements {
  std::mutex mutex;
  std::map<std::string_view, Fusion> by_name;
  std::deque<std::string> strings;

  Replacements() {
    for (const Fusion& fusion : {
             Fusion{"linear_all_reduce", {"linear", "all_reduce"}, make_linear_all_reduce},
             Fusion{"all_reduce_add_rms_norm", {"all_reduce", "add_rms_norm"}, make_reduce_norm},
             Fusion{"reduce_scatter_add_rms_norm_all_gather",
                    {"reduce_scatter", "add_rms_norm", "all_gather"},
                    make_scatter_norm_gather},
             Fusion{
                 "dispatch_gated", {"dispatch", "sync", "expert_gated"}, ops::make_dispatch_gated},
             Fusion{"linear_return",
                    {"expert_linear", "combine", "return_rows"},
                    ops::make_linear_return},
             Fusion{"gated_dispatch", {"expert_gated", "dispatch"}, ops::make_gated_push, true},
             Fusion{"gated_return", {"expert_gated", "return_rows"}, ops::make_gated_push, true},
         }) {
      by_name[fusion.name] = fusion;
    }
  }
};

Replacements& replacements() {
  static Replacements table;
  return table;
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

const std::vector<Fusion>& few_token_fusions() {
  static const std::vector<Fusion> kFusions = {
      {"all_reduce_add_rms_norm", {"all_reduce", "add_rms_norm"}, make_few_token_reduce_norm},
      {"norm_linear", {"add_rms_norm", "linear"}, make_norm_linear},
      {"norm_linear", {"add_rms_norm", "gated_linear"}, make_norm_linear},
      {"norm_linear", {"rms_norm", "linear"}, make_norm_linear},
      {"norm_linear", {"rms_norm", "gated_linear"}, make_norm_linear},
  };
  return kFusions;
}

const Fusion* find_replacement(std::string_view name) {
  Replacements& table = replacements();
  const std::lock_guard lock(table.mutex);
  const auto it = table.by_name.find(name);
  return it == table.by_name.end() ? nullptr : &it->second;
}

std::vector<std::string_view> replacement_names() {
  Replacements& table = replacements();
  const std::lock_guard lock(table.mutex);
  std::vector<std::string_view> names;
  for (const auto& [name, fusion] : table.by_name) names.push_back(name);
  return names;
}

void add_replacement(const Fusion& fusion) {
  if (fusion.name.empty() || fusion.pattern.empty() || fusion.make == nullptr) {
    fail(ErrorCode::kInvalidArgument, "replacement '{}': wanted a name, a pattern and make()",
         fusion.name);
  }
  Replacements& table = replacements();
  const std::lock_guard lock(table.mutex);
  if (table.by_name.contains(fusion.name)) {
    fail(ErrorCode::kInvalidArgument, "replacement '{}' is there already", fusion.name);
  }
  const auto keep = [&](std::string_view text) -> std::string_view {
    return table.strings.emplace_back(text);
  };
  Fusion kept{keep(fusion.name), {}, fusion.make, fusion.joins};
  for (std::string_view kind : fusion.pattern) kept.pattern.push_back(keep(kind));
  table.by_name.emplace(kept.name, std::move(kept));
}

std::vector<int> count_readers(const Program& program) {
  std::vector<int> readers(program.values.size());
  const auto count = [&](ValueId id) {
    if (id != kNoValue) ++readers[id];
  };
  for (const Op& op : program.ops) std::for_each(op.inputs.begin(), op.inputs.end(), count);
  std::for_each(program.outputs.begin(), program.outputs.end(), count);
  return readers;
}

std::optional<Op> fused_op(const Program& program, const Fusion& fusion, std::span<const Op> run,
                           const std::vector<int>& readers) {
  if (run.size() != fusion.pattern.size() || !matches(fusion, run)) return std::nullopt;
  std::optional<Op> op = fusion.make(program, run);
  if (op && !hides_only_inner_values(*op, run, readers)) return std::nullopt;
  return op;
}

Program fuse(const Program& program, std::span<const Fusion> table) {
  const std::vector<int> readers = count_readers(program);
  Program fused{.name = program.name,
                .capacity = program.capacity,
                .values = program.values,
                .ops = {},
                .outputs = program.outputs,
                .expert_ranks = program.expert_ranks};
  fused.ops.reserve(program.ops.size());
  bool any = false;
  for (size_t i = 0; i < program.ops.size();) {
    const std::span<const Op> rest = std::span(program.ops).subspan(i);
    size_t taken = 0;
    for (const Fusion& fusion : table) {
      if (!matches(fusion, rest)) continue;
      const std::span<const Op> run = rest.first(fusion.pattern.size());
      std::optional<Op> op = fused_op(program, fusion, run, readers);
      if (!op) continue;
      fused.ops.push_back(std::move(*op));
      taken = run.size();
      any = true;
      break;
    }
    if (taken == 0) {
      fused.ops.push_back(program.ops[i]);
      taken = 1;
    }
    i += taken;
  }
  if (any) verify(fused);
  return fused;
}

}  // namespace braid
