#include "braid/kernels/cpu/attention/attention_state.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "braid/base/error.h"
#include "braid/kernels/cpu/attention/attention.h"
#include "braid/kernels/cpu/attention/dual_decode.h"
#include "braid/kernels/cpu/attention/kernels.h"

namespace braid::cpu {
namespace {

constexpr int64_t kChunkKeys = 64;
constexpr int64_t kMaxChunks = 64;
constexpr float kNoKeys = -std::numeric_limits<float>::infinity();

// The decode kernel's states have their maximum in base 2, results have it in base e.
constexpr float kNatural = std::numbers::ln2_v<float>;

// Division of a query's keys: by their number alone, so teams of all sizes agree.
struct Chunks {
  explicit Chunks(int64_t keys)
      : size(std::max(kChunkKeys, round_up(ceil_div(keys, kMaxChunks), kChunkKeys))),
        count(ceil_div(keys, size)) {}
  int64_t size, count;
};

// A head's states over some chunks, in the decode kernel's form, become a single state.
void merge_chunks(const float* states, int64_t stride, int64_t chunks, int64_t D, float* out) {
  const int64_t end = state_offset(D);
  float top = kNoKeys;
  for (int64_t i = 0; i < chunks; ++i) top = std::max(top, states[i * stride + end + kStateMax]);
  std::fill_n(out, D + 1, 0.0f);
  for (int64_t i = 0; i < chunks; ++i) {
    const float* chunk = states + i * stride;
    const float weight = std::exp2(chunk[end + kStateMax] - top);
    for (int64_t d = 0; d < D; ++d) out[d] += weight * chunk[d];
    out[D] += weight * chunk[end + kStateSum];
  }
  out[D + 1] = top * kNatural;
}

struct State {
  const float* sum = nullptr;  // O' [D]
  float l = 0;
  float m = 0;
};

// The sum of states with the weights e^(m - max m). O' goes to `out`.
template <class Part>
State merge(int64_t parts, const Part& part, int64_t D, float* out) {
  State merged{out, 0, kNoKeys};
  for (int64_t i = 0; i < parts; ++i) merged.m = std::max(merged.m, part(i).m);
  std::fill_n(out, D, 0.0f);
  for (int64_t i = 0; i < parts; ++i) {
    const State state = part(i);
    if (state.m == kNoKeys) continue;
    const float weight = std::exp(state.m - merged.m);
    for (int64_t d = 0; d < D; ++d) out[d] += weight * state.sum[d];
    merged.l += weight * state.l;
  }
  return merged;
}

// As decode_dual, for query t: p.begin holds each chunk's first key, then the query's position.
void run_dual(const AttentionStateParams& p, int64_t t, const DecodeChunk& all,
              void (*kernel)(const DecodeChunk&)) {
  const int64_t position = p.begin[p.chunks * p.queries + t];
  decode_dual(*p.dual, p.frequencies, position, all, kernel, [&](auto run) {
    for (int64_t n = 0; n < p.chunks; ++n) {
      const int64_t next = n + 1 < p.chunks ? p.begin[(n + 1) * p.queries + t] : all.end;
      const int64_t begin = std::max<int64_t>(all.begin, p.begin[n * p.queries + t]);
      const int64_t end = std::min(all.end, next);
      if (begin < end) run(begin, end, n * p.dual->chunk);
    }
  });
}

}  // namespace

int64_t attention_state_scratch_bytes(int64_t q_heads, int64_t head_dim) {
  return kMaxChunks * q_heads * state_floats(head_dim) * static_cast<int64_t>(sizeof(float));
}

void attention_state(const AttentionStateParams& p, const Team& team, Isa isa) {
  const int64_t D = p.cache.head_dim, kv_heads = p.cache.kv_heads;
  BRAID_CHECK(D % 8 == 0 && D > 0 && D <= kMaxHeadDim, "head_dim {}", D);
  BRAID_CHECK(p.q_heads == kv_heads * p.group, "{} heads of {} KV heads in groups of {}", p.q_heads,
              kv_heads, p.group);
  const auto chunk_kernel = pick_isa(isa, BRAID_EACH_ISA(attention_decode_chunk));
  constexpr float kLog2e = std::numbers::log2e_v<float>;
  const ScoreSpec score = p.softcap > 0 ? ScoreSpec{p.scale / p.softcap, p.softcap * kLog2e}
                                        : ScoreSpec{p.scale * kLog2e, 0};
  auto* const states = reinterpret_cast<float*>(p.scratch);
  const int64_t head_floats = state_floats(D), chunk_floats = p.q_heads * head_floats;
  for (int64_t t = 0; t < p.queries; ++t) {
    const Chunks chunks(std::max<int64_t>(p.end[t] - p.begin[t], 0));
    const Range mine = team.share(chunks.count * kv_heads);
    for (int64_t item = mine.begin; item < mine.end; ++item) {
      const int64_t i = item / kv_heads, j = item % kv_heads;
      const int64_t offset = bytes_of(p.cache.dtype, j * D);
      DecodeChunk c;
      c.kv = {.k = static_cast<const std::byte*>(p.cache.k) + offset,
              .v = static_cast<const std::byte*>(p.cache.v) + offset,
              .dtype = p.cache.dtype,
              .pages = p.slots + p.rows[t] * p.row_slots,  // pages with a key each
              .page_size = 1,
              .row_stride = kv_heads * D,
              .head_dim = D};
      c.score = score;
      c.q = p.q + (t * p.q_heads + j * p.group) * D;
      c.heads = static_cast<int>(p.group);
      c.begin = p.begin[t] + i * chunks.size;
      c.end = std::min<int64_t>(p.end[t], c.begin + chunks.size);
      c.cold = item < mine.begin + kv_heads;
      c.next_end = std::min<int64_t>(p.end[t], c.end + kChunkKeys);
      c.state = states + i * chunk_floats + j * p.group * head_floats;
      p.dual ? run_dual(p, t, c, chunk_kernel) : chunk_kernel(c);
    }
    team.barrier();
    const Range heads = team.share(p.q_heads);
    for (int64_t h = heads.begin; h < heads.end; ++h) {
      merge_chunks(states + h * head_floats, chunk_floats, chunks.count, D,
                   p.out + (t * p.q_heads + h) * (D + 2));
    }
    if (t + 1 < p.queries) team.barrier();
  }
}

void merge_states(const MergeStatesParams& p, const Team& team) {
  const int64_t D = p.head_dim;
  const Range mine = team.share(p.queries * p.heads);
  for (int64_t row = mine.begin; row < mine.end; ++row) {
    const bool merged = row < p.room * p.heads;
    const auto part = [&](int64_t i) -> State {
      const float* state =
          merged ? p.states + (i * p.room * p.heads + row) * (D + 2) : p.own + row * (D + 2);
      return {state, state[D], state[D + 1]};
    };
    float* out = p.out + row * D;
    const float total = merge(merged ? p.parts : 1, part, D, out).l;
    for (int64_t d = 0; d < D && total != 0; ++d) out[d] /= total;
  }
}

void pack_states(const PackStatesParams& p, const Team& team) {
  const int64_t D = p.head_dim;
  const Range mine = team.share(p.rows);
  for (int64_t row = mine.begin; row < mine.end; ++row) {
    const auto part = [&](int64_t i) -> State {
      const int64_t at = i * p.rows + row;
      return {p.sums + at * D, p.l[at], p.m[at]};
    };
    float* out = p.out + row * (D + 2);
    const State merged = merge(p.parts, part, D, out);
    out[D] = merged.l;
    out[D + 1] = merged.m;
  }
}

}  // namespace braid::cpu
