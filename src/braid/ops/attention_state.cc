#include "braid/ops/attention_state.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <utility>

#include "braid/ops/rules.h"

namespace braid::ops {
namespace {

std::vector<ValueType> infer_state(const Attrs& attrs, TypeList in) {
  constexpr std::string_view op = "attention_state";
  const auto& a = attrs.as<AttentionStateAttrs>();
  const int64_t D = a.attention.head_dim;
  require_rank(op, "q", in[0], 4);
  require_float(op, "q", in[0]);
  require_dim(op, "q", in[0], 0, 1);
  require_dim(op, "q", in[0], 3, D);
  for (size_t i : {1u, 2u}) {
    require_rank(op, "cache", in[i], 4);
    require_float(op, "cache", in[i]);
    require_dim(op, "cache", in[i], 3, D);
  }
  for (size_t i : {3u, 4u, 5u, 6u}) require_dtype(op, "metadata", in[i], DType::i32);
  const int64_t T = in[0].shape[1];
  require_rank(op, "slots", in[3], 2);
  require_dim(op, "rows", in[4], 0, T);
  require_rank(op, "begin", in[5], 2);
  require_dim(op, "begin", in[5], 1, T);
  require_dim(op, "end", in[6], 0, T);
  const int64_t last_row = a.window_row + (a.attention.dual ? a.chunks : 0);
  if (a.window_row < 0 || a.chunks < 1 || last_row >= in[5].shape[0]) {
    fail(ErrorCode::kInvalidArgument, "attention_state: rows {} to {} of begin, which has {}",
         a.window_row, last_row, in[5].shape[0]);
  }
  const int64_t heads = in[0].shape[2];
  if (heads != in[1].shape[2] * a.attention.group) {
    fail(ErrorCode::kInvalidArgument,
         "attention_state: {} query heads, {} KV heads in groups of {}", heads, in[1].shape[2],
         a.attention.group);
  }
  return {{DType::f32, {1, T, heads, D + 2}, BatchAxis::sequence}};
}

Cost cost_state(const Attrs& attrs, TypeList in, TypeList out, const Work& work) {
  const auto& a = attrs.as<AttentionStateAttrs>().attention;
  const double key_bytes = static_cast<double>(in[1].shape[2] * a.head_dim) *
                           static_cast<double>(bytes_of(in[1].dtype, 1) + bytes_of(in[2].dtype, 1));
  return {.flops = 4.0 * static_cast<double>(in[0].shape[2] * a.head_dim * work.attended),
          .bytes = live_bytes(in[0], work) + live_bytes(out[0], work) +
                   key_bytes * static_cast<double>(work.kv_tokens)};
}

ShardRule shard_state(const Attrs&, TypeList, std::span<const Placement>, int) {
  return replicate_all(7, 1);
}

void reference_state(const OpCall& call) {
  const auto& attrs = call.attrs<AttentionStateAttrs>();
  const AttentionAttrs& a = attrs.attention;
  const TensorView &k = call.in[1], &v = call.in[2];
  const int64_t heads = call.in[0].shape[2], D = a.head_dim, kv_heads = k.shape[2];
  std::vector<float> row(D), q(D), met(D);
  std::vector<double> frequencies;
  if (a.dual) frequencies = rope_frequencies(a.dual->rope, nullptr);
  std::vector<double> scores, sum(D);
  const auto load = [&](const TensorView& cache, int64_t slot, int64_t head) {
    dequantize_row(cache.dtype, cache.row(slot * kv_heads + head), row.data(), D);
  };
  for (int64_t t = 0; t < call.in[0].shape[1]; ++t) {
    const auto* slots = call.in[3].row_as<const int32_t>(call.in[4].as<const int32_t>()[t]);
    const auto row_of = [&](int64_t n) {
      return call.in[5].row_as<const int32_t>(attrs.window_row + n)[t];
    };
    const Range keys{row_of(0), call.in[6].as<const int32_t>()[t]};
    for (int64_t h = 0; h < heads; ++h) {
      dequantize_row(call.in[0].dtype, call.in[0].row(t * heads + h), q.data(), D);
      auto* out = call.out[0].row_as<float>(t * heads + h);
      scores.clear();
      met = q;
      double top = -std::numeric_limits<double>::infinity(), growth = 1;
      for (int64_t j = keys.begin, chunk = -1; j < keys.end; ++j) {
        const int64_t before = chunk;
        while (a.dual && (chunk < 0 || (chunk + 1 < attrs.chunks && j >= row_of(chunk + 1)))) {
          ++chunk;
        }
        if (chunk != before) {
          const int64_t position = row_of(attrs.chunks);
          growth = a.dual->growth(position);
          met = q;
          turn_heads(a.dual->rope, frequencies, a.dual->moves(position, chunk * a.dual->chunk), 1,
                     0, met.data());
        }
        load(k, slots[j], h / a.group);
        double s = 0;
        for (int64_t d = 0; d < D; ++d) {
          s += static_cast<double>(met[d]) * row[d];
        }
        s *= a.scale * growth;
        scores.push_back(a.softcap > 0 ? a.softcap * std::tanh(s / a.softcap) : s);
        top = std::max(top, scores.back());
      }
      sum.assign(D, 0);
      double total = 0;
      for (size_t j = 0; j < scores.size(); ++j) {
        const double p = std::exp(scores[j] - top);
        load(v, slots[keys.begin + static_cast<int64_t>(j)], h / a.group);
        for (size_t d = 0; d < sum.size(); ++d) sum[d] += p * row[d];
        total += p;
      }
      for (size_t d = 0; d < sum.size(); ++d) out[d] = static_cast<float>(sum[d]);
      out[D] = static_cast<float>(total);
      out[D + 1] = static_cast<float>(top);
    }
  }
}

std::vector<ValueType> infer_merge(const Attrs& attrs, TypeList in) {
  const auto& [parts, dtype, sequence] = attrs.as<MergeStatesAttrs>();
  require_rank("merge_states", "states", in[0], 4);
  require_dtype("merge_states", "states", in[0], DType::f32);
  require_dim("merge_states", "states", in[0], 0, 1);
  if (parts < 1 || in[0].shape[1] % parts != 0 || in[0].shape[3] < 3) {
    fail(ErrorCode::kInvalidArgument, "merge_states: states are {}, no {} parts of whole queries",
         to_string(in[0]), parts);
  }
  int64_t queries = in[0].shape[1] / parts;
  if (in.size() > 1) {
    require_dtype("merge_states", "own", in[1], DType::f32);
    require_rank("merge_states", "own", in[1], 4);
    require_dim("merge_states", "own", in[1], 2, in[0].shape[2]);
    require_dim("merge_states", "own", in[1], 3, in[0].shape[3]);
    if (in[1].shape[1] < parts * queries || sequence) {
      fail(ErrorCode::kInvalidArgument,
           "merge_states: own states are {}, behind {} queries or more", to_string(in[1]),
           parts * queries);
    }
    queries += in[1].shape[1] - parts * queries;
  }
  const int64_t heads = in[0].shape[2], D = in[0].shape[3] - 2;
  if (sequence) return {{dtype, {1, queries, heads, D}, BatchAxis::sequence}};
  return {{dtype, {queries, heads * D}, BatchAxis::shard}};
}

Cost cost_merge(const Attrs&, TypeList in, TypeList out, const Work& work) {
  return {.bytes = live_bytes(in[0], work) + live_bytes(out[0], work)};
}

ShardRule shard_merge(const Attrs&, TypeList in, std::span<const Placement>, int) {
  return replicate_all(in.size(), 1);
}

// A state, wherever its parts lie.
struct State {
  const float* sum = nullptr;  // O' [D]
  float l = 0;
  float m = 0;
};

// The sum of states with the weights e^(m - top): O' to `sum`; returns l and `top`.
std::pair<double, double> merge(int parts, const std::function<State(int part)>& part,
                                std::span<double> sum) {
  double top = -std::numeric_limits<double>::infinity(), total = 0;
  for (int p = 0; p < parts; ++p) top = std::max<double>(top, part(p).m);
  std::ranges::fill(sum, 0);
  for (int p = 0; p < parts; ++p) {
    const State state = part(p);
    if (std::isinf(state.m)) continue;
    const double weight = std::exp(state.m - top);
    for (size_t d = 0; d < sum.size(); ++d) sum[d] += weight * state.sum[d];
    total += weight * state.l;
  }
  return {total, top};
}

void reference_merge(const OpCall& call) {
  const auto& attrs = call.attrs<MergeStatesAttrs>();
  const TensorView& states = call.in[0];
  const int64_t n = states.shape[1] / attrs.parts, heads = states.shape[2], D = states.shape[3] - 2;
  const int64_t live = attrs.sequence ? n : call.extents().shard, parts = attrs.parts;
  std::vector<double> sum(D);
  std::vector<float> row(heads * D);
  for (int64_t t = 0; t < live; ++t) {
    for (int64_t h = 0; h < heads; ++h) {
      const auto part = [&](int p) -> State {
        const auto* s = t < n ? states.row_as<const float>((p * n + t) * heads + h)
                              : call.in[1].row_as<const float>(((parts - 1) * n + t) * heads + h);
        return {s, s[D], s[D + 1]};
      };
      const double total = merge(t < n ? attrs.parts : 1, part, sum).first;
      float* out = row.data() + h * D;
      for (int64_t d = 0; d < D; ++d) {
        out[d] = total > 0 ? static_cast<float>(sum[d] / total) : 0;
      }
    }
    std::byte* const to = attrs.sequence ? call.out[0].row(t * heads) : call.out[0].row(t);
    quantize_row(call.out[0].dtype, row.data(), to, heads * D);
  }
}

std::vector<ValueType> infer_pack(const Attrs& attrs, TypeList in) {
  const int parts = attrs.as<PackStatesAttrs>().parts;
  require_rank("pack_states", "state_o", in[0], 4);
  require_dim("pack_states", "state_o", in[0], 0, 1);
  for (size_t i : {0u, 1u, 2u}) require_dtype("pack_states", "the state", in[i], DType::f32);
  for (size_t i : {1u, 2u}) {
    require_rank("pack_states", "state_l or state_m", in[i], 3);
    require_dim("pack_states", "state_l or state_m", in[i], 1, in[0].shape[1]);
    require_dim("pack_states", "state_l or state_m", in[i], 2, in[0].shape[2]);
  }
  if (parts < 1 || in[0].shape[1] % parts != 0) {
    fail(ErrorCode::kInvalidArgument, "pack_states: states are {}, no {} parts of whole queries",
         to_string(in[0]), parts);
  }
  ValueType out = in[0];
  out.shape[1] /= parts;
  out.shape[3] += 2;
  return {out};
}

ShardRule shard_pack(const Attrs&, TypeList, std::span<const Placement>, int) {
  return replicate_all(3, 1);
}

void reference_pack(const OpCall& call) {
  const int parts = call.attrs<PackStatesAttrs>().parts;
  const int64_t D = call.in[0].shape[3], rows = call.in[0].shape[1] / parts * call.in[0].shape[2];
  std::vector<double> sum(D);
  for (int64_t row = 0; row < rows; ++row) {
    const auto part = [&](int p) -> State {
      const int64_t at = p * rows + row;
      return {call.in[0].row_as<const float>(at), call.in[1].as<const float>()[at],
              call.in[2].as<const float>()[at]};
    };
    const auto [total, top] = merge(parts, part, sum);
    auto* out = call.out[0].row_as<float>(row);
    for (int64_t d = 0; d < D; ++d) out[d] = static_cast<float>(sum[d]);
    out[D] = static_cast<float>(total);
    out[D + 1] = static_cast<float>(top);
  }
}

}  // namespace

const OpDef kAttentionState = {.kind = "attention_state",
                               .infer = infer_state,
                               .mutated_inputs = {},
                               .cost = cost_state,
                               .shard = shard_state,
                               .reference = reference_state};

const OpDef kMergeStates = {.kind = "merge_states",
                            .infer = infer_merge,
                            .mutated_inputs = {},
                            .cost = cost_merge,
                            .shard = shard_merge,
                            .reference = reference_merge};

const OpDef kPackStates = {.kind = "pack_states",
                           .infer = infer_pack,
                           .mutated_inputs = {},
                           .cost = cost_merge,
                           .shard = shard_pack,
                           .reference = reference_pack};

}  // namespace braid::ops
