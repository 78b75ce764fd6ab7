#include "braid/ops/thin_keys.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "braid/ops/rules.h"
#include "braid/tensor/quant.h"

namespace braid::ops {
namespace {

using By = ThinnedPart::By;
constexpr size_t kScorers = 3;  // input: probes or scores

std::vector<ValueType> infer(const Attrs& attrs, TypeList in) {
  constexpr std::string_view op = "thin_keys";
  const auto& a = attrs.as<ThinKeysAttrs>();
  for (size_t i = 0; i < in.size() && i < kScorers; ++i) {
    const char* const operand = i == 0 ? "q" : "k or v";
    require_rank(op, operand, in[i], 4);
    require_dtype(op, operand, in[i], in[0].dtype);
    require_dim(op, operand, in[i], 0, 1);
    require_dim(op, operand, in[i], 3, in[0].shape[3]);
  }
  if (a.group < 1 || in[0].shape[2] != in[1].shape[2] * a.group) {
    fail(ErrorCode::kInvalidArgument, "{}: {} query heads, {} KV heads in groups of {}", op,
         in[0].shape[2], in[1].shape[2], a.group);
  }
  int64_t rows = 0, ordered = 0;
  for (const ThinnedPart& p : a.parts) {
    rows += p.keep;
    ordered += p.rows;
    if (p.by != By::q && in.size() <= kScorers) {
      fail(ErrorCode::kInvalidArgument, "{}: no probes or scores", op);
    }
    const ValueType& by = in[p.by == By::q ? 0 : kScorers];
    require_rank(op, "probes or scores", by, 4);
    require_dtype(op, "probes or scores", by, p.by == By::scores ? DType::f32 : in[0].dtype);
    require_dim(op, "probes or scores", by, 2, in[p.by == By::scores ? 1 : 0].shape[2]);
    const int64_t q_rows = by.shape[1], scoring = p.by == By::scores ? p.rows : p.queries;
    if (p.q_row < 0 || scoring < 1 || p.q_row + scoring > q_rows) {
      fail(ErrorCode::kInvalidArgument, "{}: {} queries from row {} on, of {}", op, scoring,
           p.q_row, q_rows);
    }
    // Each key is seen by the last query at least.
    if (p.by != By::scores && (p.sees < 1 || p.sees + p.queries - 1 < p.rows)) {
      fail(ErrorCode::kInvalidArgument, "{}: {} queries see {} keys and more, of {}", op, p.queries,
           p.sees, p.rows);
    }
    if (p.k_row < 0 || p.keep < 0 || p.keep > p.rows || p.k_row + p.rows > in[1].shape[1]) {
      fail(ErrorCode::kInvalidArgument, "{}: {} of {} rows from {} on, of {}", op, p.keep, p.rows,
           p.k_row, in[1].shape[1]);
    }
  }
  if (rows > a.rows) fail(ErrorCode::kInvalidArgument, "{}: {} rows of {}", op, rows, a.rows);
  if (a.order_rows > 0 && ordered > a.order_rows) {
    fail(ErrorCode::kInvalidArgument, "{}: an order of {} rows in {}", op, ordered, a.order_rows);
  }
  const ValueType out{
      in[1].dtype, {1, a.rows, in[1].shape[2], in[1].shape[3]}, BatchAxis::sequence};
  std::vector<ValueType> outputs{out, out};
  if (a.order_rows > 0) {
    outputs.push_back({DType::i32, {1, a.order_rows, in[1].shape[2], 1}, BatchAxis::sequence});
  }
  return outputs;
}

Cost cost(const Attrs& attrs, TypeList in, TypeList out, const Work& work) {
  const auto& a = attrs.as<ThinKeysAttrs>();
  double rows = 0, pairs = 0;
  for (const ThinnedPart& p : a.parts) {
    rows += static_cast<double>(p.rows);
    pairs += static_cast<double>(p.rows * p.queries);
  }
  return {
      .flops = 2.0 * static_cast<double>(in[0].shape[2] * in[0].shape[3]) * pairs,
      .bytes = static_cast<double>(bytes_of(in[1].dtype, in[1].shape[2] * in[1].shape[3])) * rows +
               2 * live_bytes(out[0], work)};
}

ShardRule shard(const Attrs& attrs, TypeList in, std::span<const Placement>, int) {
  return replicate_all(in.size(), attrs.as<ThinKeysAttrs>().order_rows > 0 ? 3 : 2);
}

// The importance of a part's keys for KV head h: [part.rows].
std::vector<double> importance(const OpCall& call, const ThinnedPart& part, int64_t h) {
  const auto& a = call.attrs<ThinKeysAttrs>();
  const TensorView &q = call.in[part.by == By::q ? 0 : kScorers], &k = call.in[1];
  const int64_t D = k.shape[3], heads = k.shape[2], n = part.rows;
  std::vector<double> paid(n);
  if (part.by == By::scores) {
    for (int64_t j = 0; j < n; ++j) {
      paid[j] = q.as<const float>()[(part.q_row + j) * heads + h];
    }
    return paid;
  }
  std::vector<double> scores(n);
  std::vector<float> x(D), y(D);
  for (int64_t t = 0; t < part.queries; ++t) {
    const int64_t seen = std::min(n, part.sees + t);
    for (int64_t g = 0; g < a.group; ++g) {
      dequantize_row(q.dtype, q.row((part.q_row + t) * heads * a.group + h * a.group + g), x.data(),
                     D);
      double top = -std::numeric_limits<double>::infinity(), sum = 0;
      for (int64_t j = 0; j < seen; ++j) {
        dequantize_row(k.dtype, k.row((part.k_row + j) * heads + h), y.data(), D);
        const double s = a.scale * std::inner_product(x.begin(), x.end(), y.begin(), 0.0);
        scores[j] = s;
        top = std::max(top, s);
      }
      for (int64_t j = 0; j < seen; ++j) {
        double& s = scores[j];
        sum += s = std::exp(s - top);
      }
      for (int64_t j = 0; j < seen; ++j) {
        paid[j] += scores[j] / sum;
      }
    }
  }
  for (int64_t j = 0; j < n; ++j) {
    paid[j] /= static_cast<double>(part.queries - std::max<int64_t>(0, j + 1 - part.sees));
  }
  return paid;
}

// Rows of k of a part in their order for KV head h, counted from k_row: [part.rows].
std::vector<int32_t> order_keys(const OpCall& call, const ThinnedPart& part, int64_t h) {
  const auto& a = call.attrs<ThinKeysAttrs>();
  const int64_t n = part.rows;
  const std::vector<double> paid = importance(call, part, h);
  std::vector<int32_t> order(n);
  std::iota(order.begin(), order.end(), 0);
  const auto rest = order.begin() + std::min(part.sinks, n);
  // The last ones behind the sinks, from the last on.
  const int64_t recent = std::min<int64_t>(a.recent, order.end() - rest);
  std::rotate(rest, order.end() - recent, order.end());
  std::reverse(rest, rest + recent);
  std::stable_sort(rest + recent, order.end(),
                   [&](int32_t i, int32_t j) { return paid[i] > paid[j]; });
  return order;
}

void reference(const OpCall& call) {
  for (size_t part = 0; part < call.attrs<ThinKeysAttrs>().parts.size(); ++part) {
    for (int64_t h = 0; h < call.in[1].shape[2]; ++h) thin_part(call, part, h);
  }
}

}  // namespace

void thin_part(const OpCall& call, size_t part, int64_t h) {
  const auto& parts = call.attrs<ThinKeysAttrs>().parts;
  const ThinnedPart& p = parts[part];
  const int64_t heads = call.in[1].shape[2];
  const auto bytes = static_cast<size_t>(bytes_of(call.in[1].dtype, call.in[1].shape[3]));
  int64_t to = 0, first = 0;
  for (size_t i = 0; i < part; ++i) to += parts[i].keep, first += parts[i].rows;
  const std::vector<int32_t> order = order_keys(call, p, h);
  for (int64_t i = 0; call.out.size() > 2 && i < p.rows; ++i) {
    call.out[2].as<int32_t>()[(first + i) * heads + h] = order[i];
  }
  for (int64_t i = 0; i < p.keep; ++i, ++to) {
    const int64_t from = p.k_row + order[i];
    for (size_t v : {0u, 1u}) {
      std::memcpy(call.out[v].row(to * heads + h), call.in[1 + v].row(from * heads + h), bytes);
    }
  }
}

const OpDef kThinKeys = {.kind = "thin_keys",
                         .infer = infer,
                         .mutated_inputs = {},
                         .cost = cost,
                         .shard = shard,
                         .reference = reference};

}  // namespace braid::ops
