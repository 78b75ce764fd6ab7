#include "braid/ops/latent_attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "braid/ops/rules.h"

namespace braid::ops {
namespace {

namespace append_in {
enum Input : size_t { kKv, kNorm, kPositions, kSlots, kCache, kCount };
}
namespace attention_in {
enum Input : size_t { kQ, kPositions, kKb, kVb, kCache, kStart, kLength, kPages, kCount };
}

void require_latents(std::string_view op, const ValueType& cache, int64_t width) {
  require_rank(op, "cache", cache, 4);
  require_float(op, "cache", cache);
  require_dim(op, "cache", cache, 2, 1);
  require_dim(op, "cache", cache, 3, width);
}

std::vector<ValueType> infer_append(const Attrs& attrs, TypeList in) {
  using namespace append_in;
  BRAID_CHECK(in.size() == kCount);
  require_rank("latent_append", "kv", in[kKv], 2);
  require_float("latent_append", "kv", in[kKv]);
  const int64_t Dr = attrs.as<LatentAppendAttrs>().rope.head_dim, R = in[kKv].shape[1] - Dr;
  require_rank("latent_append", "norm", in[kNorm], 1);
  require_dim("latent_append", "norm", in[kNorm], 0, R);
  for (const size_t i : {kPositions, kSlots}) {
    require_dtype("latent_append", "positions or slots", in[i], DType::i32);
  }
  require_latents("latent_append", in[kCache], R + Dr);
  return {};
}

Cost cost_append(const Attrs&, TypeList in, TypeList, const Work& work) {
  return {.flops = 6 * live_elems(in[0], work), .bytes = 2 * live_bytes(in[0], work)};
}

ShardRule shard_append(const Attrs&, TypeList, std::span<const Placement>, int) {
  return replicate_all(append_in::kCount, 0);
}

void reference_append(const OpCall& call) {
  using namespace append_in;
  const auto& a = call.attrs<LatentAppendAttrs>();
  const std::vector<double> inv_freq = rope_frequencies(a.rope, nullptr);
  const std::vector<float> norm = load_row(call.in[kNorm], 0);
  const auto R = std::ssize(norm);
  const TensorView& cache = call.in[kCache];
  for (int64_t t = 0; t < call.rows(); ++t) {
    const int32_t slot = call.in[kSlots].as<const int32_t>()[t];
    if (slot < 0) continue;
    std::vector<float> row = load_row(call.in[kKv], t);
    double squares = 0;
    for (int64_t i = 0; i < R; ++i) squares += static_cast<double>(row[i]) * row[i];
    const double inverse = 1 / std::sqrt(squares / static_cast<double>(R) + a.eps);
    for (size_t i = 0; i < norm.size(); ++i) {
      row[i] = static_cast<float>(row[i] * inverse) * norm[i];
    }
    turn(a.rope, inv_freq, call.in[kPositions].as<const int32_t>()[t], &row[norm.size()],
         &row[norm.size()]);
    quantize_row(cache.dtype, row.data(), cache.row(slot), std::ssize(row));
  }
}

std::vector<ValueType> infer_attention(const Attrs& attrs, TypeList in) {
  using namespace attention_in;
  BRAID_CHECK(in.size() == kCount);
  const auto& a = attrs.as<LatentAttentionAttrs>();
  require_rank("latent_attention", "q", in[kQ], 2);
  require_float("latent_attention", "q", in[kQ]);
  require_rank("latent_attention", "k_b", in[kKb], 3);
  require_rank("latent_attention", "v_b", in[kVb], 3);
  const LatentSizes n(a, in);
  require_dim("latent_attention", "q", in[kQ], 1, n.H * (n.Dn + n.Dr));
  require_dim("latent_attention", "v_b", in[kVb], 0, n.H);
  require_dim("latent_attention", "v_b", in[kVb], 2, n.R);
  require_latents("latent_attention", in[kCache], n.R + n.Dr);
  for (const size_t i : {kPositions, kStart, kLength, kPages}) {
    require_dtype("latent_attention", "metadata", in[i], DType::i32);
  }
  return {{in[kQ].dtype, {in[kQ].shape[0], n.H * n.Dv}, in[kQ].axis}};
}

Cost cost_attention(const Attrs& attrs, TypeList in, TypeList out, const Work& work) {
  using namespace attention_in;
  const LatentSizes n(attrs.as<LatentAttentionAttrs>(), in);
  const double tokens = live_elems({DType::f32, {in[kQ].shape[0]}, in[kQ].axis}, work);
  Cost cost;
  for (const size_t i : {kQ, kKb, kVb}) cost.bytes += live_bytes(in[i], work);
  cost.bytes += live_bytes(out[0], work) +
                static_cast<double>(work.kv_tokens * bytes_of(in[kCache].dtype, n.R + n.Dr));
  const auto pairs = static_cast<double>(work.attended);
  cost.flops =
      2.0 * static_cast<double>(n.H) *
      std::min(n.absorbed(pairs, tokens), n.plain(pairs, static_cast<double>(work.kv_tokens)));
  return cost;
}

ShardRule shard_attention(const Attrs&, TypeList in, std::span<const Placement> placed, int) {
  using namespace attention_in;
  ShardRule rule = replicate_all(kCount, 1);
  if (!placed[kKb].is_shard(0) || placed[kKb] != placed[kVb]) return rule;
  const std::vector<Range>& heads = placed[kKb].parts;
  const int64_t H = in[kKb].shape[0];
  rule.inputs[kKb] = rule.inputs[kVb] = placed[kKb];
  rule.inputs[kQ] = Placement::shard(1, scale_parts(heads, in[kQ].shape[1] / H));
  rule.outputs[0] = Placement::shard(1, scale_parts(heads, in[kVb].shape[1]));
  return rule;
}

// y += factor * x
void add_scaled(std::vector<double>& y, double factor, const std::vector<float>& x) {
  for (size_t i = 0; i < y.size(); ++i) y[i] += factor * x[i];
}

double dot(const std::vector<double>& x, const std::vector<float>& y) {
  double sum = 0;
  for (size_t i = 0; i < x.size(); ++i) sum += x[i] * y[i];
  return sum;
}

// Head h's query, turned, against latents: [R + Dr].
std::vector<double> absorbed(const LatentAttentionAttrs& a, const LatentSizes& n,
                             const TensorView& k_b, const float* q, int64_t h) {
  std::vector<double> result(n.R);
  const TensorView head = matrix(k_b, h);
  for (int64_t row = 0; row < head.shape[0]; ++row) {
    const std::vector<float> w = load_row(head, row);
    if (a.transposed) {
      for (size_t d = 0; d < w.size(); ++d) result[row] += static_cast<double>(w[d]) * q[d];
    } else {
      add_scaled(result, q[row], w);
    }
  }
  result.insert(result.end(), q + n.Dn, q + n.Dn + n.Dr);
  return result;
}

void reference_attention(const OpCall& call) {
  using namespace attention_in;
  const auto& a = call.attrs<LatentAttentionAttrs>();
  const LatentSizes n(a, call.in);
  const std::vector<double> inv_freq = rope_frequencies(a.rope, nullptr);
  const auto* q_start = call.in[kStart].as<const int32_t>();
  const auto* kv_len = call.in[kLength].as<const int32_t>();
  const int64_t first_token = call.part->begin.token;
  const TensorView& cache = call.in[kCache];
  const int64_t BS = cache.shape[1];
  for (int64_t s = 0; s < call.extents().sequence; ++s) {
    const auto* pages = call.in[kPages].row_as<const int32_t>(s);
    const int64_t end = q_start[s + 1] - first_token;
    for (int64_t t = q_start[s] - first_token; t < end; ++t) {
      const int64_t last = kv_len[s] - (end - t);
      std::vector<float> q = load_row(call.in[kQ], t), out;
      for (int64_t h = 0; h < n.H; ++h) {
        float* own = &q[h * (n.Dn + n.Dr)];
        turn(a.rope, inv_freq, call.in[kPositions].as<const int32_t>()[t], own + n.Dn, own + n.Dn);
        const std::vector<double> to_latents = absorbed(a, n, call.in[kKb], own, h);
        std::vector<double> scores, sum(n.R);
        const auto latents = [&](int64_t j) {
          return load_row(cache, pages[j / BS] * BS + j % BS);
        };
        for (int64_t j = 0; j <= last; ++j) scores.push_back(a.scale * dot(to_latents, latents(j)));
        const double top = *std::ranges::max_element(scores);
        double total = 0;
        for (int64_t j = 0; j <= last; ++j) {
          const double p = std::exp(scores[j] - top);
          total += p;
          add_scaled(sum, p, latents(j));
        }
        const TensorView v = matrix(call.in[kVb], h);
        for (int64_t d = 0; d < n.Dv; ++d) {
          out.push_back(static_cast<float>(dot(sum, load_row(v, d)) / total));
        }
      }
      store_row(call.out[0], t, out);
    }
  }
}

}  // namespace

double LatentSizes::absorbed(double pairs, double tokens) const {
  return pairs * static_cast<double>(2 * R + Dr) + tokens * static_cast<double>(R * (Dn + Dv));
}

double LatentSizes::plain(double pairs, double keys) const {
  return pairs * static_cast<double>(Dn + Dr + Dv) + keys * static_cast<double>(R * (Dn + Dv));
}

bool takes_plain_form(const LatentSizes& n, int64_t tokens, int64_t keys) {
  if (tokens < kFewestPlainTokens) return false;
  const auto pairs = static_cast<double>(tokens * (keys - tokens) + tokens * (tokens + 1) / 2);
  return n.plain(pairs, static_cast<double>(keys)) < n.absorbed(pairs, static_cast<double>(tokens));
}

int64_t most_absorbed_tokens(const LatentSizes& n) {
  // Each token in front of the step costs an expansion, and saves with each new token.
  const int64_t saved = 2 * n.R - n.Dn - n.Dv, expansion = n.R * (n.Dn + n.Dv);
  if (saved <= 0) return std::numeric_limits<int64_t>::max();
  return std::max(kFewestPlainTokens - 1, (expansion - 1) / saved);
}

void turn(const RopeAttrs& a, const std::vector<double>& inv_freq, int64_t position, const float* x,
          float* y) {
  const size_t half = inv_freq.size();
  const bool pairs = a.pairing == RopePairing::interleaved;
  for (size_t i = 0; i < half; ++i) {
    const size_t p = pairs ? 2 * i : i, r = pairs ? 2 * i + 1 : i + half;
    const double angle = static_cast<double>(position) * inv_freq[i];
    const double cos = std::cos(angle) * a.attention_factor,
                 sin = std::sin(angle) * a.attention_factor;
    const double u = x[p], v = x[r];
    y[p] = static_cast<float>(u * cos - v * sin);
    y[r] = static_cast<float>(v * cos + u * sin);
  }
}

const OpDef kLatentAppend = {.kind = "latent_append",
                             .infer = infer_append,
                             .mutated_inputs = {append_in::kCache},
                             .cost = cost_append,
                             .shard = shard_append,
                             .reference = reference_append};

const OpDef kLatentAttention = {.kind = "latent_attention",
                                .infer = infer_attention,
                                .cost = cost_attention,
                                .shard = shard_attention,
                                .reference = reference_attention};

ValueId latent_attention(Builder& b, ValueId q, ValueId kv, ValueId positions, ValueId cache,
                         const AttentionMeta& meta, const LatentWeights& weights,
                         const LatentAppendAttrs& append, const LatentAttentionAttrs& attrs) {
  b.op(kLatentAppend, Attrs::of(append), {kv, weights.norm, positions, meta.slots, cache});
  return b.op1(
      kLatentAttention, Attrs::of(attrs),
      {q, positions, weights.k_b, weights.v_b, cache, meta.q_start, meta.kv_len, meta.page_table});
}

}  // namespace braid::ops
