#include "braid/kernels/cuda/decode_choice/describe_step.h"

#include <fmt/format.h>

#include <algorithm>

#include "braid/kernels/cuda/linear/few_config.h"
#include "braid/ops/attention_block.h"
#include "braid/ops/fusion.h"

namespace braid::cuda {
namespace {

using ops::BlockInput;

constexpr size_t at(BlockInput input) {
  return static_cast<size_t>(input);
}

bool is_linear(const Op& op) {
  return op.def == &ops::kLinear || op.def == &ops::kGatedLinear || op.def == &ops::kNormLinear;
}

std::string why_no_relay(const FusedShape& s) {
  if (s.tokens != 1) return fmt::format("{} tokens a step: 1", s.tokens);
  for (const DType w : s.weights) {
    if (!relay_takes(w)) return fmt::format("weights in {}: bf16 or blocks", name(w));
  }
  const RelayAttentionShape attention{s.head_dim, s.group, s.kv_heads, s.page_size};
  if (s.cache != DType::bf16) return fmt::format("a cache in {}: bf16", name(s.cache));
  if (s.softcap) return "scores with a softcap: none";
  if (!s.even_heads) return "heads of which a rank has part of a group: whole groups only";
  if (!relay_takes(attention, {})) {
    return fmt::format("{} query heads of {} for a KV head, pages of {}: up to {} of 64 or 128",
                       s.group, s.head_dim, s.page_size, kRelayMaxGroup);
  }
  if (s.width > kRelayMaxNorm) {
    return fmt::format("rows of {} elements: {} at most", s.width, kRelayMaxNorm);
  }
  return "";
}

}  // namespace

int64_t product_bytes(const Program& program, const Op& op) {
  int64_t bytes = 0;
  if (!is_linear(op)) return bytes;
  for (const ValueId id : op.inputs) {
    if (id == kNoValue) continue;
    const Value& value = program.value(id);
    if (value.kind == ValueKind::weight && value.type.shape.rank() == 2) {
      bytes += bytes_of(value.type);
    }
  }
  return bytes;
}

FusedShape fused_shape(const Op& op, TypeList in) {
  const auto& a = op.attrs.as<ops::AttentionBlockAttrs>();
  const auto type = [&](BlockInput i) -> const ValueType& { return in[at(i)]; };
  FusedShape s{.tokens = type(BlockInput::a).shape[0],
               .width = type(BlockInput::a).shape[1],
               .kv_heads = type(BlockInput::cache_k).shape[2],
               .group = static_cast<int>(a.attention.group),
               .head_dim = static_cast<int>(a.attention.head_dim),
               .page_size = type(BlockInput::cache_k).shape[1],
               .cache = type(BlockInput::cache_k).dtype,
               .softcap = a.attention.softcap > 0,
               .normed = a.normed};
  constexpr BlockInput kWeights[] = {BlockInput::wq, BlockInput::wk, BlockInput::wv};
  for (size_t i = 0; i < 3; ++i) s.weights[i] = type(kWeights[i]).dtype;
  s.even_heads = a.attention.head_offset == 0 &&
                 type(BlockInput::wq).shape[0] == s.kv_heads * s.group * s.head_dim;
  if (a.projects) {
    s.weights[3] = type(BlockInput::wo).dtype;
    s.outputs = type(BlockInput::wo).shape[0];
  }
  return s;
}

std::optional<DecodeStep> describe_step(const Program& program, int64_t context) {
  const auto layers = std::ranges::count(program.ops, &ops::kAttention, &Op::def);
  if (layers == 0) return {};
  const Program fused = fuse(program, ops::attention_block_fusions(true));
  const auto block = std::ranges::find(fused.ops, &ops::kAttentionBlock, &Op::def);
  const auto blocks = std::ranges::count(fused.ops, &ops::kAttentionBlock, &Op::def);
  if (block == fused.ops.end()) return {};
  DecodeStep step{.layers = static_cast<int>(layers), .context = context};
  const std::vector<ValueType> in = fused.input_types(*block);
  step.block = fused_shape(*block, in);
  const int64_t tokens = step.block.tokens;
  // A step with several tokens that is no prompt has room for equally many sequences.
  const bool each = tokens == 1 || in[at(BlockInput::page_table)].shape[0] == tokens;
  if (!each) return {};
  // Before panels, norms are separate launches.
  step.norms_apart =
      panel_pays({.dtype = step.block.weights[0], .tokens = static_cast<int>(tokens)});
  if (step.norms_apart) step.launches += 2;
  int64_t gates = 0, downs = 0;
  for (const Op& op : fused.ops) {
    const int64_t bytes = product_bytes(fused, op);
    if (bytes == 0) continue;
    if (std::ranges::count(fused.outputs, op.outputs.back()) > 0) {
      step.head_bytes += bytes;
    } else {
      (op.def == &ops::kLinear ? downs : gates) += bytes;
    }
  }
  step.down_bytes = downs / layers;
  step.ffn_bytes = (gates + downs) / layers;
  step.no_relay = why_no_relay(step.block);
  const auto& attrs = block->attrs.as<ops::AttentionBlockAttrs>();
  if (blocks != layers) {
    step.no_fused = fmt::format("{} of {} layers have the ops of a block", blocks, layers);
  } else if (!attrs.normed && in[at(BlockInput::a)].dtype != DType::bf16) {
    step.no_fused = fmt::format("an input in {}: bf16", name(in[at(BlockInput::a)].dtype));
  } else if (attrs.qkv.linear.dtype != DType::bf16 || attrs.out.dtype != DType::bf16) {
    step.no_fused = fmt::format("activations in {} and {}: bf16", name(attrs.qkv.linear.dtype),
                                name(attrs.out.dtype));
  }
  return step;
}

}  // namespace braid::cuda
