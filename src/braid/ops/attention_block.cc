#include "braid/ops/attention_block.h"

#include <algorithm>
#include <array>

#include "braid/ops/rules.h"

namespace braid::ops {
namespace {

constexpr size_t at(BlockInput input) {
  return static_cast<size_t>(input);
}

template <class T>
const T& get(std::span<const T> in, BlockInput input) {
  return in[at(input)];
}

// Each op's share of the block's inputs, beside other ops' outputs.
template <class T>
std::vector<T> qkv_inputs(const AttentionBlockAttrs& a, std::span<const T> in) {
  std::vector<T> result = {in.begin(), in.begin() + at(BlockInput::positions)};
  if (!a.normed) result.erase(result.begin() + 1, result.begin() + at(BlockInput::wq));
  return result;
}
// The op that makes q, k and v.
const OpDef& qkv_op(const AttentionBlockAttrs& a) {
  return a.normed ? kNormLinear : kLinear;
}
Attrs qkv_attrs(const AttentionBlockAttrs& a) {
  return a.normed ? Attrs::of(a.qkv) : Attrs::of(a.qkv.linear);
}
template <class T>
std::vector<T> rope_inputs(std::span<const T> in, const T& q, const T& k, const T& v) {
  std::vector<T> result = {q, k, v};
  result.insert(result.end(), in.begin() + at(BlockInput::positions),
                in.begin() + at(BlockInput::q_start));
  return result;
}
template <class T>
std::vector<T> attention_inputs(std::span<const T> in, const T& q) {
  return {q,
          get(in, BlockInput::cache_k),
          get(in, BlockInput::cache_v),
          get(in, BlockInput::q_start),
          get(in, BlockInput::kv_len),
          get(in, BlockInput::page_table)};
}
template <class T>
std::vector<T> out_inputs(std::span<const T> in, const T& x) {
  return {x, get(in, BlockInput::wo), get(in, BlockInput::bo)};
}

// Types of all values that the block's ops make.
struct Types {
  std::vector<ValueType> qkv;  // the sum, if any, then q, k, v
  ValueType q;
  ValueType attended;
  std::vector<ValueType> out;  // of the block

  Types(const AttentionBlockAttrs& a, TypeList in) {
    const size_t want = a.projects ? kProjectedBlockInputs : kBlockInputs;
    if (in.size() != want || a.qkv.gated || a.qkv.linear.n != 3) {
      fail(ErrorCode::kInvalidArgument,
           "attention_block: {} inputs and {} products of the norm, wanted {} and 3", in.size(),
           a.qkv.linear.n, want);
    }
    qkv = qkv_op(a).infer(qkv_attrs(a), qkv_inputs(a, in));
    const size_t first = qkv.size() - 3;
    const auto rope = rope_inputs(in, qkv[first], qkv[first + 1], qkv[first + 2]);
    q = kRopeAppend.infer(Attrs::of(a.rope), rope)[0];
    attended = kAttention.infer(Attrs::of(a.attention), attention_inputs(in, q))[0];
    out.assign(qkv.begin(), qkv.begin() + static_cast<int64_t>(first));
    out.push_back(a.projects ? kLinear.infer(Attrs::of(a.out), out_inputs(in, attended))[0]
                             : attended);
  }
};

std::vector<ValueType> infer(const Attrs& attrs, TypeList in) {
  return Types(attrs.as<AttentionBlockAttrs>(), in).out;
}

// The parts' work, without bytes for values between the parts.
Cost cost(const Attrs& attrs, TypeList in, TypeList out, const Work& work) {
  const auto& a = attrs.as<AttentionBlockAttrs>();
  const Types types(a, in);
  const std::span made(types.qkv);
  const auto q = made.last(3);
  Cost cost = qkv_op(a).cost(qkv_attrs(a), qkv_inputs(a, in), made, work);
  const Cost attention = kAttention.cost(Attrs::of(a.attention), attention_inputs(in, types.q),
                                         std::array{types.attended}, work);
  cost += attention;
  for (const ValueType& type : q) cost.bytes -= live_bytes(type, work);
  cost.bytes += live_bytes(q[1], work) + live_bytes(q[2], work);  // to the cache
  cost.bytes -= live_bytes(types.q, work) + live_bytes(types.attended, work);
  if (a.projects) {
    cost += kLinear.cost(Attrs::of(a.out), out_inputs(in, types.attended), out.last(1), work);
    cost.bytes -= live_bytes(types.attended, work);
  } else {
    cost.bytes += live_bytes(types.attended, work);
  }
  return cost;
}

ShardRule shard(const Attrs&, TypeList in, std::span<const Placement> placed, int) {
  ShardRule rule = replicate_all(in.size(), 1);
  for (const auto input : {BlockInput::cache_k, BlockInput::cache_v}) {
    rule.inputs[at(input)] = placed[at(input)];
  }
  return rule;
}

// A value between two of the ops.
struct Between {
  explicit Between(const ValueType& type)
      : bytes(static_cast<size_t>(bytes_of(type.dtype, type.shape.elems()))),
        view(make_view(bytes.data(), type.dtype, type.shape)) {}
  std::vector<std::byte> bytes;
  TensorView view;
};

void reference(const OpCall& call) {
  const auto& a = call.attrs<AttentionBlockAttrs>();
  std::vector<ValueType> in_types;
  for (const TensorView& view : call.in) {
    in_types.push_back(view.data == nullptr ? ValueType{} : ValueType{view.dtype, view.shape});
  }
  const Types types(a, in_types);
  const size_t first = types.qkv.size() - 3;
  Between q(types.qkv[first]), k(types.qkv[first + 1]), v(types.qkv[first + 2]), turned(types.q),
      attended(types.attended);
  const auto run = [&](const OpDef& def, Attrs attrs, const std::vector<TensorView>& in,
                       const std::vector<TensorView>& out) {
    const Op op = {.attrs = std::move(attrs)};
    def.reference({&op, in, out, call.axis, call.part});
  };
  std::vector<TensorView> made(call.out.begin(), call.out.begin() + static_cast<int64_t>(first));
  made.insert(made.end(), {q.view, k.view, v.view});
  run(qkv_op(a), qkv_attrs(a), qkv_inputs(a, call.in), made);
  run(kRopeAppend, Attrs::of(a.rope), rope_inputs(call.in, q.view, k.view, v.view), {turned.view});
  run(kAttention, Attrs::of(a.attention), attention_inputs(call.in, turned.view),
      {a.projects ? attended.view : call.out.back()});
  if (a.projects) {
    run(kLinear, Attrs::of(a.out), out_inputs(call.in, attended.view), {call.out.back()});
  }
}

std::optional<Op> make_block(const Program&, std::span<const Op> run) {
  const Op &qkv = run[0], &rope = run[1], &attends = run[2];
  const bool normed = qkv.def == &kNormLinear;
  const NormLinearAttrs attrs = normed ? qkv.attrs.as<NormLinearAttrs>()
                                       : NormLinearAttrs{.linear = qkv.attrs.as<LinearAttrs>()};
  if (attrs.gated || attrs.linear.n != 3 || attrs.linear.bias_elsewhere ||
      attends.attrs.as<AttentionAttrs>().dual) {
    return std::nullopt;
  }
  const std::span made = std::span(qkv.outputs).last(3);
  if (!std::equal(made.begin(), made.end(), rope.inputs.begin()) ||
      attends.inputs[0] != rope.outputs[0] || attends.inputs[1] != rope.inputs[6] ||
      attends.inputs[2] != rope.inputs[7]) {
    return std::nullopt;
  }
  AttentionBlockAttrs block{.qkv = attrs,
                            .normed = normed,
                            .rope = rope.attrs.as<RopeAppendAttrs>(),
                            .attention = attends.attrs.as<AttentionAttrs>()};
  Op op{&kAttentionBlock, {}, qkv.inputs, {}, attends.scope, attends.tag};
  if (!normed) op.inputs.insert(op.inputs.begin() + 1, {kNoValue, kNoValue});
  op.inputs.insert(op.inputs.end(), rope.inputs.begin() + 3, rope.inputs.end());
  op.inputs.insert(op.inputs.end(), attends.inputs.begin() + 3, attends.inputs.end());
  op.outputs.assign(qkv.outputs.begin(), qkv.outputs.end() - 3);
  if (run.size() == 3) {
    op.outputs.push_back(attends.outputs[0]);
  } else {
    const Op& out = run[3];
    block.projects = true;
    block.out = out.attrs.as<LinearAttrs>();
    if (block.out.n != 1 || out.inputs[0] != attends.outputs[0]) return std::nullopt;
    op.inputs.insert(op.inputs.end(), out.inputs.begin() + 1, out.inputs.end());
    op.outputs.push_back(out.outputs[0]);
  }
  op.attrs = Attrs::of(block);
  return op;
}

}  // namespace

const OpDef kAttentionBlock = {.kind = "attention_block",
                               .infer = infer,
                               .mutated_inputs = {static_cast<int>(BlockInput::cache_k),
                                                  static_cast<int>(BlockInput::cache_v)},
                               .cost = cost,
                               .shard = shard,
                               .reference = reference};

const std::vector<Fusion>& attention_block_fusions(bool projects) {
  static const std::vector<Fusion> kWithout = {
      {"attention_block", {"norm_linear", "rope_append", "attention"}, make_block},
      {"attention_block", {"linear", "rope_append", "attention"}, make_block}};
  static const std::vector<Fusion> kWith = {
      {"attention_block", {"norm_linear", "rope_append", "attention", "linear"}, make_block},
      {"attention_block", {"linear", "rope_append", "attention", "linear"}, make_block}};
  return projects ? kWith : kWithout;
}

}  // namespace braid::ops
