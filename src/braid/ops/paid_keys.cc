#include "braid/ops/paid_keys.h"

#include <algorithm>
#include <cmath>

#include "braid/ops/rules.h"

namespace braid::ops {
namespace {

std::vector<ValueType> infer_paid(const Attrs& attrs, TypeList in) {
  constexpr std::string_view op = "paid_keys";
  const SegmentAttentionAttrs& a = attrs.as<PaidKeysAttrs>().segments;
  std::vector<ValueType> out;
  for (size_t i = 0; i < in.size(); ++i) {
    require_rank(op, i == 0 ? "q" : "k", in[i], 4);
    require_dim(op, i == 0 ? "q" : "k", in[i], 0, 1);
    require_dim(op, i == 0 ? "q" : "k", in[i], 2, i == 0 ? a.heads : a.kv_heads);
    require_dim(op, i == 0 ? "q" : "k", in[i], 3, in[0].shape[3]);
    if (i > 0) out.push_back({DType::f32, {1, in[i].shape[1], a.kv_heads, 1}, in[i].axis});
  }
  for (const QSegment& s : a.q) {
    BRAID_CHECK(s.row >= 0 && s.row + s.rows <= in[0].shape[1] && s.kv_begin <= s.kv_end &&
                s.kv_end <= std::ssize(a.kv));
  }
  for (const KvSegment& s : a.kv) {
    BRAID_CHECK(s.kv >= 0 && s.kv + 1 < std::ssize(in) && s.row >= 0 &&
                s.row + s.rows <= in[static_cast<size_t>(s.kv) + 1].shape[1]);
  }
  return out;
}

double pairs_of(const SegmentAttentionAttrs& a) {
  double pairs = 0;
  for (double n : a.pairs()) pairs += n;
  return pairs;
}

Cost cost_paid(const Attrs& attrs, TypeList in, TypeList out, const Work& work) {
  const SegmentAttentionAttrs& a = attrs.as<PaidKeysAttrs>().segments;
  Cost cost{.flops = 2.0 * static_cast<double>(a.heads * in[0].shape[3]) * pairs_of(a)};
  for (size_t i = 0; i < out.size(); ++i) {
    cost.bytes += live_bytes(in[i + 1], work) + live_bytes(out[i], work);
  }
  return cost;
}

ShardRule shard_paid(const Attrs&, TypeList in, std::span<const Placement>, int) {
  return replicate_all(in.size(), in.size() - 1);
}

void paid(const OpCall& call) {
  const SegmentAttentionAttrs& a = call.attrs<PaidKeysAttrs>().segments;
  for (const TensorView& out : call.out) std::fill_n(out.as<float>(), out.shape.elems(), 0.0f);
  const TensorView& q = call.in[0];
  for (const QSegment& s : a.q) {
    for (int64_t r = s.row; r < s.row + s.rows; ++r) {
      for (int64_t h = 0; h < a.heads; ++h) {
        const auto x = load_row(q, r * a.heads + h);
        const int64_t kv_head = h / a.group;
        std::vector<std::pair<float*, double>> scores;
        double top = -INFINITY, sum = 0;
        for (int i = s.kv_begin; i < s.kv_end; ++i) {
          const KvSegment& kv = a.kv[i];
          const TensorView& k = call.in[static_cast<size_t>(kv.kv) + 1];
          float* const out = call.out[kv.kv].as<float>();
          const Range keys = a.visible(s.position + r - s.row, kv);
          for (int64_t j = kv.row + keys.begin; j < kv.row + keys.end; ++j) {
            const auto y = load_row(k, j * a.kv_heads + kv_head);
            double dot = 0;
            for (size_t d = 0; d < x.size(); ++d) dot += double{x[d]} * y[d];
            scores.emplace_back(out + j * a.kv_heads + kv_head, dot * a.scale);
            top = std::max(top, scores.back().second);
          }
        }
        for (auto& [at, score] : scores) sum += score = std::exp(score - top);
        for (const auto& [at, score] : scores) *at += static_cast<float>(score / sum);
      }
    }
  }
}

std::vector<ValueType> infer_scores(const Attrs& attrs, TypeList in) {
  constexpr std::string_view op = "key_scores";
  const auto& a = attrs.as<KeyScoresAttrs>();
  require_dtype(op, "order", in[0], DType::i32);
  for (const ValueType& type : in) {
    require_rank(op, "order or paid", type, 4);
    require_dim(op, "order or paid", type, 2, in[0].shape[2]);
  }
  for (const ScoredPart& p : a.parts) {
    BRAID_CHECK(p.row + p.rows <= std::min(a.rows, in[0].shape[1]) && p.queries >= 1 &&
                p.sees + p.queries - 1 >= p.rows && p.paid_row + p.rows <= in[1].shape[1]);
    for (const ScoredPart::Sum& s : p.sums) {
      BRAID_CHECK(s.rows <= p.rows && s.paid + 1 < std::ssize(in) &&
                  s.row + s.rows <= in[static_cast<size_t>(s.paid) + 1].shape[1]);
    }
  }
  return {{DType::f32, {1, a.rows, in[0].shape[2], 1}, in[0].axis}};
}

Cost cost_scores(const Attrs&, TypeList in, TypeList out, const Work& work) {
  return elementwise_cost(in, out, work, 1);
}

ShardRule shard_scores(const Attrs&, TypeList in, std::span<const Placement>, int) {
  return replicate_all(in.size(), 1);
}

void scores(const OpCall& call) {
  const int64_t heads = call.in[0].shape[2];
  const auto* order = call.in[0].as<const int32_t>();
  const auto paid_at = [&](int paid, int64_t row, int64_t h) {
    return call.in[static_cast<size_t>(paid) + 1].as<const float>()[row * heads + h];
  };
  for (const ScoredPart& p : call.attrs<KeyScoresAttrs>().parts) {
    for (int64_t h = 0; h < heads; ++h) {
      std::vector<double> sum, seen;
      for (int64_t j = 0; j < p.rows; ++j) {
        sum.push_back(paid_at(0, p.paid_row + j, h));
        seen.push_back(static_cast<double>(p.queries - std::max<int64_t>(0, j + 1 - p.sees)));
      }
      const auto key = [&](int64_t place) {
        return static_cast<size_t>(order[(p.row + place) * heads + h]);
      };
      for (const ScoredPart::Sum& s : p.sums) {
        for (int64_t i = 0; i < s.rows; ++i) sum[key(i)] += paid_at(s.paid, s.row + i, h);
      }
      for (const ScoredPart::Readers& r : p.readers) {
        for (int64_t i = 0; i < r.keys; ++i) seen[key(i)] += static_cast<double>(r.queries);
      }
      for (int64_t j = 0; j < p.rows; ++j) {
        const size_t at = j;
        call.out[0].as<float>()[(p.row + j) * heads + h] = static_cast<float>(sum[at] / seen[at]);
      }
    }
  }
}

}  // namespace

const OpDef kPaidKeys = {.kind = "paid_keys",
                         .infer = infer_paid,
                         .mutated_inputs = {},
                         .cost = cost_paid,
                         .shard = shard_paid,
                         .reference = paid};

const OpDef kKeyScores = {.kind = "key_scores",
                          .infer = infer_scores,
                          .mutated_inputs = {},
                          .cost = cost_scores,
                          .shard = shard_scores,
                          .reference = scores};

}  // namespace braid::ops
