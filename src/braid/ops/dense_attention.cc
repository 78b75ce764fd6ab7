#include "braid/ops/dense_attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "braid/ops/rules.h"

namespace braid::ops {
namespace {

constexpr std::string_view kOp = "dense_attention";

// Each part's rows in a sequence.
std::vector<int64_t> part_rows(const DenseAttentionAttrs& a, TypeList parts) {
  std::vector<int64_t> rows;
  for (const ValueType& part : parts) rows.push_back(part.shape[0] / a.batch);
  return rows;
}

int64_t sum(const std::vector<int64_t>& rows) {
  int64_t total = 0;
  for (int64_t n : rows) total += n;
  return total;
}

void require_part(const DenseAttentionAttrs& a, std::string_view operand, const ValueType& type,
                  const ValueType& first) {
  require_rank(kOp, operand, type, 2);
  require_float(kOp, operand, type);
  require_dtype(kOp, operand, type, first.dtype);
  require_dim(kOp, operand, type, 1, first.shape[1]);
  if (type.shape[1] % a.head_dim != 0) {
    fail(ErrorCode::kInvalidArgument, "{}: {} is {}, no whole heads of {}", kOp, operand,
         to_string(type), a.head_dim);
  }
  if (type.shape[0] % a.batch != 0) {
    fail(ErrorCode::kInvalidArgument, "{}: {} is {}, no whole rows for each of {} sequences", kOp,
         operand, to_string(type), a.batch);
  }
}

std::vector<ValueType> infer(const Attrs& attrs, TypeList in) {
  const auto& a = attrs.as<DenseAttentionAttrs>();
  BRAID_CHECK(a.head_dim > 0 && a.batch > 0 && a.q_parts > 0 && a.kv_parts > 0 &&
                  in.size() == a.key_len() + 1,
              "{} inputs, {} and {} parts", in.size(), a.q_parts, a.kv_parts);
  const TypeList q = in.first(a.first_key());
  const TypeList k = in.subspan(a.first_key(), a.kv_parts);
  const TypeList v = in.subspan(a.first_value(), a.kv_parts);
  for (const ValueType& type : q) require_part(a, "q", type, q[0]);
  for (size_t i = 0; i < k.size(); ++i) {
    require_part(a, "k", k[i], k[0]);
    require_part(a, "v", v[i], k[0]);
    require_dtype(kOp, "k", k[i], q[0].dtype);
    require_dim(kOp, "v", v[i], 0, k[i].shape[0]);
  }
  const int64_t heads = q[0].shape[1] / a.head_dim, kv_heads = k[0].shape[1] / a.head_dim;
  if (kv_heads == 0 || heads % kv_heads != 0) {
    fail(ErrorCode::kInvalidArgument, "{}: {} query heads over {} KV heads", kOp, heads, kv_heads);
  }
  const int64_t Lq = sum(part_rows(a, q)), Lk = sum(part_rows(a, k));
  if (a.causal && Lq != Lk) {
    fail(ErrorCode::kInvalidArgument, "{}: {} queries over {} keys, causal wants as many", kOp, Lq,
         Lk);
  }
  if (const ValueType& bias = in[a.bias()]; bias.shape.rank() != 0) {
    require_rank(kOp, "bias", bias, 3);
    require_dtype(kOp, "bias", bias, DType::f32);
    require_dim(kOp, "bias", bias, 0, heads);
    require_dim(kOp, "bias", bias, 1, Lq);
    require_dim(kOp, "bias", bias, 2, Lk);
  }
  if (const ValueType& key_len = in[a.key_len()]; key_len.shape.rank() != 0) {
    require_rank(kOp, "key_len", key_len, 1);
    require_dtype(kOp, "key_len", key_len, DType::i32);
    require_dim(kOp, "key_len", key_len, 0, a.batch);
  }
  return {q.begin(), q.end()};
}

Cost cost(const Attrs& attrs, TypeList in, TypeList out, const Work& work) {
  const auto& a = attrs.as<DenseAttentionAttrs>();
  Cost cost = elementwise_cost(in, out, work, 0);
  const auto Lq = static_cast<double>(sum(part_rows(a, in.first(a.first_key()))));
  const auto Lk = static_cast<double>(sum(part_rows(a, in.subspan(a.first_key(), a.kv_parts))));
  const double pairs = a.causal ? Lq * (Lq + 1) / 2 : Lq * Lk;
  cost.flops = 4 * static_cast<double>(a.batch) * static_cast<double>(in[0].shape[1]) * pairs;
  return cost;
}

ShardRule shard(const Attrs& attrs, TypeList in, std::span<const Placement> placed, int) {
  const auto& a = attrs.as<DenseAttentionAttrs>();
  ShardRule rule = replicate_all(in.size(), a.q_parts);
  const Placement& heads = placed[0];
  // Queries by row, which see all keys.
  const bool one = a.q_parts == 1 && a.batch == 1 && !a.causal && in[a.bias()].shape.rank() == 0;
  if (heads.is_shard(0) && one) {
    rule.inputs[0] = rule.outputs[0] = heads;
    return rule;
  }
  if (!heads.is_shard(1)) return rule;
  const int64_t group = in[0].shape[1] / in[a.first_key()].shape[1], whole = group * a.head_dim;
  std::vector<Range> parts, keys;
  for (const Range& part : heads.parts) {
    if (part.begin % whole != 0 || part.end % whole != 0) return rule;
    parts.push_back({part.begin / a.head_dim, part.end / a.head_dim});
    keys.push_back({part.begin / group, part.end / group});
  }
  for (size_t i = 0; i < a.bias(); ++i) {
    rule.inputs[i] = i < a.first_key() ? heads : Placement::shard(1, keys);
  }
  if (in[a.bias()].shape.rank() != 0) rule.inputs[a.bias()] = Placement::shard(0, parts);
  std::ranges::fill(rule.outputs, heads);
  return rule;
}

// The rows of a sequence, over all parts: row i is `view`'s row `row`.
struct Row {
  const TensorView* view;
  int64_t row;
};
std::vector<Row> rows_of(std::span<const TensorView> parts, int64_t batch, int64_t b) {
  std::vector<Row> rows;
  for (const TensorView& part : parts) {
    const int64_t L = part.shape[0] / batch;
    for (int64_t i = 0; i < L; ++i) rows.push_back({&part, (b * L) + i});
  }
  return rows;
}

void reference(const OpCall& call) {
  const auto& a = call.attrs<DenseAttentionAttrs>();
  const size_t kv_parts = a.kv_parts;
  const int64_t D = a.head_dim, heads = call.in[0].cols() / D;
  const int64_t group = heads / (call.in[a.first_key()].cols() / D);
  const TensorView &bias = call.in[a.bias()], &key_len = call.in[a.key_len()];
  for (int64_t b = 0; b < a.batch; ++b) {
    const auto q = rows_of(call.in.first(a.first_key()), a.batch, b);
    const auto o = rows_of(call.out, a.batch, b);
    std::vector<std::vector<float>> k, v;
    for (const Row& row : rows_of(call.in.subspan(a.first_key(), kv_parts), a.batch, b)) {
      k.push_back(load_row(*row.view, row.row));
    }
    for (const Row& row : rows_of(call.in.subspan(a.first_value(), kv_parts), a.batch, b)) {
      v.push_back(load_row(*row.view, row.row));
    }
    const auto keys = std::ssize(k);
    const int64_t live =
        key_len.data ? std::clamp<int64_t>(key_len.as<const int32_t>()[b], 0, keys) : keys;
    std::vector<double> score(k.size());
    for (int64_t i = 0; i < std::ssize(q); ++i) {
      const std::vector<float> query = load_row(*q[i].view, q[i].row);
      std::vector<float> out(query.size());
      const int64_t seen = a.causal ? std::min(live, i + 1) : live;
      for (int64_t h = 0; h < heads; ++h) {
        const int64_t at = h * D, kv_at = h / group * D;
        double top = -std::numeric_limits<double>::infinity(), total = 0;
        for (int64_t j = 0; j < seen; ++j) {
          double dot = 0;
          for (int64_t d = 0; d < D; ++d) dot += double{query[at + d]} * k[j][kv_at + d];
          score[j] = dot * a.scale;
          if (bias.data) {
            score[j] += bias.as<const float>()[(((h * std::ssize(q)) + i) * keys) + j];
          }
          top = std::max(top, score[j]);
        }
        for (int64_t j = 0; j < seen; ++j) total += score[j] = std::exp(score[j] - top);
        for (int64_t d = 0; d < D; ++d) {
          double sum = 0;
          for (int64_t j = 0; j < seen; ++j) sum += score[j] * v[j][kv_at + d];
          out[at + d] = static_cast<float>(total > 0 ? sum / total : 0);
        }
      }
      store_row(*o[i].view, o[i].row, out);
    }
  }
}

}  // namespace

const OpDef kDenseAttention = {.kind = "dense_attention",
                               .infer = infer,
                               .mutated_inputs = {},
                               .cost = cost,
                               .shard = shard,
                               .reference = reference,
                               .rate = {.kind = "attention"}};

std::vector<ValueId> dense_attention(Builder& b, const DenseAttentionInputs& in,
                                     DenseAttentionAttrs attrs) {
  attrs.q_parts = static_cast<int>(in.q.size());
  attrs.kv_parts = static_cast<int>(in.k.size());
  std::vector<ValueId> inputs = in.q;
  inputs.insert(inputs.end(), in.k.begin(), in.k.end());
  inputs.insert(inputs.end(), in.v.begin(), in.v.end());
  inputs.push_back(in.bias);
  inputs.push_back(in.key_len);
  return b.op(kDenseAttention, Attrs::of(attrs), std::move(inputs));
}

}  // namespace braid::ops
