#include "braid/ops/attention.h"

#include <algorithm>
#include <cmath>

#include "braid/ops/rules.h"

namespace braid::ops {
namespace {

void require_cache(std::string_view op, const ValueType& cache, int64_t head_dim) {
  require_rank(op, "cache", cache, 4);
  require_float(op, "cache", cache);
  require_dim(op, "cache", cache, 3, head_dim);
}

std::vector<ValueType> infer_append(const Attrs& attrs, TypeList in) {
  const int64_t head_dim = attrs.as<KvAppendAttrs>().head_dim;
  require_dtype("kv_append", "slots", in[2], DType::i32);
  for (size_t i : {0u, 1u}) {
    require_cache("kv_append", in[3 + i], head_dim);
    require_rank("kv_append", "k or v", in[i], 2);
    require_dim("kv_append", "k or v", in[i], 1, in[3 + i].shape[2] * head_dim);
  }
  return {};
}

Cost cost_append(const Attrs&, TypeList in, TypeList, const Work& work) {
  return {.bytes = 4 * live_bytes(in[0], work)};
}

// Heads of a [T, H * D] placement, and back: the cache is sharded by whole heads.
std::vector<Range> heads_of(const Placement& columns, int64_t head_dim) {
  std::vector<Range> heads;
  for (const Range& part : columns.parts) {
    BRAID_CHECK(part.begin % head_dim == 0 && part.end % head_dim == 0, "{} cuts a head of {}",
                to_string(columns), head_dim);
    heads.push_back({part.begin / head_dim, part.end / head_dim});
  }
  return heads;
}

ShardRule shard_append(const Attrs& attrs, TypeList, std::span<const Placement> placed, int) {
  ShardRule rule = replicate_all(5, 0);
  const int64_t head_dim = attrs.as<KvAppendAttrs>().head_dim;
  if (placed[3].is_shard(2)) {  // the heads that a rank's cache keeps
    rule.inputs[0] = rule.inputs[1] = Placement::shard(1, scale_parts(placed[3].parts, head_dim));
    rule.inputs[3] = rule.inputs[4] = placed[3];
    return rule;
  }
  if (placed[0].is_shard(0)) {  // a rank's own tokens, into a cache with room for all
    rule.inputs[0] = rule.inputs[1] = rule.inputs[2] = placed[0];
    return rule;
  }
  return rule;  // caches of all heads: whole keys
}

std::byte* cache_row(const TensorView& cache, int64_t slot, int64_t head) {
  return cache.row((slot * cache.shape[2]) + head);
}

void reference_append(const OpCall& call) {
  const int64_t D = call.attrs<KvAppendAttrs>().head_dim;
  for (int64_t t = 0; t < call.rows(); ++t) {
    const int32_t slot = call.in[2].as<const int32_t>()[t];
    if (slot < 0) continue;
    for (size_t i : {0u, 1u}) {
      const std::vector<float> row = load_row(call.in[i], t);
      const TensorView& cache = call.in[3 + i];
      for (int64_t h = 0; h < cache.shape[2]; ++h) {
        quantize_row(cache.dtype, &row[h * D], cache_row(cache, slot, h), D);
      }
    }
  }
}

std::vector<ValueType> infer_attention(const Attrs& attrs, TypeList in) {
  const auto& a = attrs.as<AttentionAttrs>();
  require_rank("attention", "q", in[0], 2);
  require_cache("attention", in[1], a.head_dim);
  require_cache("attention", in[2], a.head_dim);
  for (size_t i : {3u, 4u, 5u}) require_dtype("attention", "metadata", in[i], DType::i32);
  if (a.dual && (a.dual->chunk < 1 || a.dual->reach <= a.dual->chunk ||
                 a.dual->reach > 2 * a.dual->chunk || a.dual->rope.head_dim != a.head_dim)) {
    fail(ErrorCode::kInvalidArgument, "attention: chunks of {} keys with a reach of {}",
         a.dual->chunk, a.dual->reach);
  }
  const int64_t heads = in[0].shape[1] / a.head_dim;
  if (heads * a.head_dim != in[0].shape[1] || heads < 1 ||
      (heads - 1 + a.head_offset) / a.group >= in[1].shape[2]) {
    fail(ErrorCode::kInvalidArgument,
         "attention: q is {}: {} heads of {} do not read {} KV heads in groups of {} (offset {})",
         to_string(in[0]), heads, a.head_dim, in[1].shape[2], a.group, a.head_offset);
  }
  return {in[0]};
}

Cost cost_attention(const Attrs& attrs, TypeList in, TypeList out, const Work& work) {
  const auto& a = attrs.as<AttentionAttrs>();
  const int64_t heads = in[0].shape[1] / a.head_dim;
  const double key_bytes = static_cast<double>(in[1].shape[2] * a.head_dim) *
                           (info(in[1].dtype).block_bytes + info(in[2].dtype).block_bytes);
  return {.flops = 4.0 * static_cast<double>(heads * a.head_dim * work.attended),
          .bytes = live_bytes(in[0], work) + live_bytes(out[0], work) +
                   key_bytes * static_cast<double>(work.kv_tokens)};
}

// Heads are independent. A rank needs its query heads' KV heads.
ShardRule shard_attention(const Attrs& attrs, TypeList, std::span<const Placement> placed, int) {
  ShardRule rule = replicate_all(6, 1);
  if (!placed[0].is_shard(1)) return rule;
  const auto& a = attrs.as<AttentionAttrs>();
  std::vector<Range> kv_heads;
  for (const Range& q : heads_of(placed[0], a.head_dim)) {
    kv_heads.push_back(q.empty() ? Range{} : Range{q.begin / a.group, (q.end - 1) / a.group + 1});
  }
  rule.inputs[0] = rule.outputs[0] = placed[0];
  rule.inputs[1] = rule.inputs[2] = Placement::shard(2, kv_heads);
  return rule;
}

Attrs localize_attention(const Attrs& attrs, TypeList, const ShardRule& rule, int rank) {
  auto local = attrs.as<AttentionAttrs>();
  if (rule.inputs[0].is_shard(1)) {
    const size_t r = rank;
    local.head_offset = rule.inputs[0].parts[r].begin / local.head_dim -
                        rule.inputs[1].parts[r].begin * local.group;
  }
  return Attrs::of(local);
}

// A query as it meets key j, dual chunks or none.
class MetQuery {
 public:
  MetQuery(const float* q, const AttentionAttrs& a, int64_t position)
      : q_(q, q + a.head_dim), a_(a), position_(position), scale_(a.scale) {
    if (!a.dual) return;
    frequencies_ = rope_frequencies(a.dual->rope, nullptr);
    scale_ *= a.dual->growth(position);
  }
  double score(int64_t j, const std::vector<float>& key) {
    if (a_.dual && j / a_.dual->chunk != chunk_) {
      chunk_ = j / a_.dual->chunk;
      met_ = q_;
      turn_heads(a_.dual->rope, frequencies_, a_.dual->moves(position_, j), 1, 0, met_.data());
    }
    const std::vector<float>& q = a_.dual ? met_ : q_;
    double s = 0;
    for (size_t d = 0; d < q.size(); ++d) s += static_cast<double>(q[d]) * key[d];
    return s * scale_;
  }

 private:
  const std::vector<float> q_;
  const AttentionAttrs& a_;
  const int64_t position_;
  double scale_;
  std::vector<double> frequencies_;
  int64_t chunk_ = -1;
  std::vector<float> met_;
};

// The query at the position of the last of `keys` in its sequence over these keys, in f64.
void attend(const float* q, const AttentionAttrs& a, const TensorView& k, const TensorView& v,
            const int32_t* pages, int64_t kv_head, Range keys, float* out) {
  const size_t D = a.head_dim;
  MetQuery query(q, a, keys.end - 1);
  const int64_t BS = k.shape[1];
  std::vector<double> scores;
  std::vector<float> row(D);
  const auto slot = [&](int64_t j) { return pages[j / BS] * BS + j % BS; };
  for (int64_t j = keys.begin; j < keys.end; ++j) {
    dequantize_row(k.dtype, cache_row(k, slot(j), kv_head), row.data(), a.head_dim);
    const double s = query.score(j, row);
    scores.push_back(a.softcap > 0 ? a.softcap * std::tanh(s / a.softcap) : s);
  }
  const double top = *std::max_element(scores.begin(), scores.end());
  std::vector<double> sum(D);
  double total = 0;
  for (int64_t j = keys.begin; j < keys.end; ++j) {
    const double p = std::exp(scores[j - keys.begin] - top);
    dequantize_row(v.dtype, cache_row(v, slot(j), kv_head), row.data(), a.head_dim);
    for (size_t d = 0; d < D; ++d) sum[d] += p * row[d];
    total += p;
  }
  for (size_t d = 0; d < D; ++d) out[d] = static_cast<float>(sum[d] / total);
}

void reference_attention(const OpCall& call) {
  const auto& a = call.attrs<AttentionAttrs>();
  const auto* q_start = call.in[3].as<const int32_t>();
  const auto* kv_len = call.in[4].as<const int32_t>();
  const int64_t first_token = call.part->begin.token;
  for (int64_t s = 0; s < call.extents().sequence; ++s) {
    const int64_t end = q_start[s + 1] - first_token;
    for (int64_t t = q_start[s] - first_token; t < end; ++t) {
      const int64_t last = kv_len[s] - (end - t);
      const int64_t first = a.window > 0 ? std::max<int64_t>(0, last - a.window + 1) : 0;
      const std::vector<float> q = load_row(call.in[0], t);
      std::vector<float> out(q.size());
      for (int64_t h = 0; h * a.head_dim < static_cast<int64_t>(q.size()); ++h) {
        const size_t at = h * a.head_dim;
        attend(&q[at], a, call.in[1], call.in[2], call.in[5].row_as<const int32_t>(s),
               (h + a.head_offset) / a.group, {first, last + 1}, &out[at]);
      }
      store_row(call.out[0], t, out);
    }
  }
}

// Keys that a token sees, on average over the keys in the cache.
double mean_keys(TypeList, const Work& work) {
  return static_cast<double>(work.attended) /
         static_cast<double>(std::max<int64_t>(work.kv_tokens, 1));
}

}  // namespace

const OpDef kKvAppend = {.kind = "kv_append",
                         .infer = infer_append,
                         .mutated_inputs = {3, 4},
                         .cost = cost_append,
                         .shard = shard_append,
                         .reference = reference_append};

const OpDef kAttention = {.kind = "attention",
                          .infer = infer_attention,
                          .cost = cost_attention,
                          .shard = shard_attention,
                          .localize = localize_attention,
                          .reference = reference_attention,
                          .rate = {.typed_input = 1, .rows = mean_keys}};

void kv_append(Builder& b, ValueId k, ValueId v, const AttentionMeta& meta, const KvCache& cache,
               int64_t head_dim) {
  b.op(kKvAppend, Attrs::of(KvAppendAttrs{head_dim}), {k, v, meta.slots, cache.k, cache.v});
}

ValueId attention(Builder& b, ValueId q, const KvCache& cache, const AttentionMeta& meta,
                  const AttentionAttrs& attrs) {
  return b.op1(kAttention, Attrs::of(attrs),
               {q, cache.k, cache.v, meta.q_start, meta.kv_len, meta.page_table});
}

}  // namespace braid::ops
