#include "braid/parallel/attention/logical_attention.h"

#include <algorithm>

#include "braid/ops/attention.h"
#include "braid/parallel/attention/key_levels.h"

namespace braid {
namespace {

bool attends(const Op& op) {
  return op.def == &ops::kAttention;
}

bool attends_after(const Program& logical, int index) {
  return std::any_of(logical.ops.begin() + index + 1, logical.ops.end(), attends);
}

bool between_attentions(const Program& logical, int index) {
  return std::any_of(logical.ops.begin(), logical.ops.begin() + index, attends) &&
         attends_after(logical, index);
}

SequenceAttention exact_attention(const Program& logical, const TokenSharding& tokens,
                                  const Op& op) {
  const auto& attrs = op.attrs.as<ops::AttentionAttrs>();
  if (attrs.softcap > 0 && tokens.levels) {
    fail(ErrorCode::kUnsupported,
         "--keep: attention at '{}' caps its scores at {}, wanted none: leave it out", op.scope,
         attrs.softcap);
  }
  if (attrs.softcap > 0 || attrs.head_offset != 0) {
    fail(ErrorCode::kUnsupported, "{} attention at '{}': scores with a cap of {}, wanted none",
         to_string(tokens.mesh.mode), op.scope, attrs.softcap);
  }
  const ValueType& q = logical.value(op.inputs[0]).type;
  return {.q_heads = q.shape[1] / attrs.head_dim,
          .kv_heads = q.shape[1] / attrs.head_dim / attrs.group,
          .head_dim = attrs.head_dim,
          .dtype = q.dtype,
          .scale = attrs.scale,
          .window_left = attrs.window > 0 ? attrs.window - 1 : -1,
          .window_right = 0,
          .q = tokens.q,
          .kv = tokens.kv,
          .dual = attrs.dual};
}

}  // namespace

std::vector<AttentionLayer> attention_layers(const Program& logical) {
  std::vector<AttentionLayer> layers;
  for (int i = 0; i < std::ssize(logical.ops); ++i) {
    const Op& op = logical.ops[i];
    if (!attends(op)) continue;
    const int64_t window = op.attrs.as<ops::AttentionAttrs>().window;
    layers.push_back({window, window == 0 && between_attentions(logical, i)});
  }
  return layers;
}

SequenceAttention attention_over(const Program& logical, const TokenSharding& tokens, int index) {
  SequenceAttention attention = exact_attention(logical, tokens, logical.ops[index]);
  if (!tokens.levels || attention.window_left >= 0) return attention;
  if (attention.dual) {
    fail(ErrorCode::kUnsupported,
         "thinned keys (--keep) of dual chunk attention: at most {} tokens",
         attention.dual->plain());
  }
  const KeyLevels& levels = *tokens.levels;
  if (between_attentions(logical, index)) {
    attention.levels = levels;
  } else if (levels.importance == Importance::previous && attends_after(logical, index)) {
    attention.levels = keeping_all(levels);  // dense: the next attention wants its scores
  }
  return attention;
}

std::vector<std::pair<ValueType, ValueType>> opened_together(const Program& logical,
                                                             const TokenSharding& tokens,
                                                             int index) {
  constexpr int64_t kMostBytes = 32 << 20;
  std::vector<std::pair<ValueType, ValueType>> types;
  int64_t bytes = 0;
  const int64_t guests = guests_of(tokens.apart.value(), tokens.q).length();
  const int64_t head_dim = logical.ops[index].attrs.as<ops::AttentionAttrs>().head_dim;
  for (size_t i = index; i < logical.ops.size(); ++i) {
    const Op& op = logical.ops[i];
    if (!attends(op)) continue;
    if (op.attrs.as<ops::AttentionAttrs>().head_dim != head_dim) break;
    // Queries and a state on each rank take most of the room.
    const ValueType& q = logical.value(op.inputs[0]).type;
    bytes += guests * q.shape[1] * 4 * (tokens.mesh.ranks() + 1);
    if (!types.empty() && bytes > kMostBytes) break;
    ValueType k = q;
    k.shape[1] = logical.value(op.inputs[1]).type.shape[2] * head_dim;
    types.emplace_back(q, k);
  }
  return types;
}

ValueId begins_with(const Program& logical, const std::string& scope) {
  return std::ranges::find(logical.ops, scope, &Op::scope)->inputs[0];
}

}  // namespace braid
