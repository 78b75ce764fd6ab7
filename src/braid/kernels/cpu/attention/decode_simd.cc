#include "braid/kernels/cpu/attention/kv_simd.h"

namespace braid::cpu::BRAID_ISA {
namespace {

constexpr int kKeys = 64;  // per pass over K, then V
constexpr int kMaxTile = 4;
constexpr int kCols = kVectorRegisters == 32 ? 4 : 2;  // vectors of O held per row
constexpr int64_t kMaxDim = 640;

constexpr int kKeysAtOnce = kVectorRegisters == 32 ? 4 : 2;

// Sums lanes on the way to one vector: for N = kLanes, lane i of the result is the sum over m[i].
// Joining kLanes vectors in two goes is the same as in one when the first takes those that lie
// kLanes / N apart.
template <int N>
BRAID_INLINE Vec join(const Vec* m, int stride = 1) {
  if constexpr (N == 1) {
    return m[0];
  } else {
    const Vec a = join<N / 2>(m, 2 * stride);
    const Vec b = join<N / 2>(m + stride, 2 * stride);
    return interleave_low(a, b) + interleave_high(a, b);
  }
}

// acc[r][i] += q[r] * key[i] on a vector of columns; `width` columns if not 0.
template <int R, int N, class Kv>
BRAID_INLINE void dot_step(const float* q, int64_t q_stride, const Kv* const (&key)[N], int64_t d,
                           int width, Vec (&acc)[R][N]) {
  Vec x[N];
#pragma GCC unroll 4
  for (int i = 0; i < N; ++i) x[i] = width ? load_n(key[i] + d, width) : load(key[i] + d);
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) {
    const Vec w = load(q + r * q_stride + d);
#pragma GCC unroll 4
    for (int i = 0; i < N; ++i) acc[r][i] = fma(w, x[i], acc[r][i]);
  }
}

// scores[r][i] = q[r] . k[rows[i]] for kLanes keys; fetches k[next[i]] meanwhile.
template <int R, class Kv>
BRAID_INLINE void dot_keys(const float* q, int64_t q_stride, const Kv* k, const int64_t* rows,
                           const int64_t* next, int64_t head_dim, float* scores,
                           int64_t score_stride) {
  constexpr int N = kKeysAtOnce;
  constexpr int kSteps = kLanes / N;  // keys step, step + kSteps, ... go together
  const int64_t whole = head_dim / kLanes * kLanes;
  const int tail = static_cast<int>(head_dim - whole);
  Vec sums[R][kSteps];
#pragma GCC unroll 1
  for (int step = 0; step < kSteps; ++step) {
    const Kv* key[N];
#pragma GCC unroll 4
    for (int i = 0; i < N; ++i) {
      key[i] = k + rows[step + i * kSteps];
      prefetch_row(k + next[step + i * kSteps], head_dim);
    }
    Vec acc[R][N];
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
      for (int i = 0; i < N; ++i) acc[r][i] = Vec{};
    }
    for (int64_t d = 0; d < whole; d += kLanes) dot_step<R, N>(q, q_stride, key, d, 0, acc);
    if (tail) dot_step<R, N>(q, q_stride, key, whole, tail, acc);
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) sums[r][step] = join<N>(acc[r]);
  }
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) store(scores + r * score_stride, join<kSteps>(sums[r]));
}

// o[r] = o[r] * alpha[r] + sum_i p[r][i] * v[rows[i]] for C vectors of columns, the last `tail`
// wide if `tail` is not 0; fetches v[next[i]] meanwhile.
template <int R, int C, class Kv>
BRAID_INLINE void weigh_values(const float (*p)[kKeys], const Kv* v, const int64_t* rows,
                               const int64_t* next, int n, int tail, const float* alpha, float* o,
                               int64_t o_stride) {
  Vec acc[R][C];
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int c = 0; c < C; ++c) {
      acc[r][c] = load(o + r * o_stride + c * kLanes) * splat(alpha[r]);
    }
  }
  for (int i = 0; i < n; ++i) {
    const Kv* value = v + rows[i];
    prefetch_row(v + next[i], C * kLanes);
    Vec x[C];
#pragma GCC unroll 4
    for (int c = 0; c < C; ++c) {
      x[c] = c == C - 1 && tail ? load_n(value + c * kLanes, tail) : load(value + c * kLanes);
    }
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
      const Vec w = splat(p[r][i]);
#pragma GCC unroll 4
      for (int c = 0; c < C; ++c) acc[r][c] = fma(w, x[c], acc[r][c]);
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int c = 0; c < C; ++c) store(o + r * o_stride + c * kLanes, acc[r][c]);
  }
}

// R heads over the keys of `rows`.
template <int R, class Kv>
void tile(const DecodeChunk& c, const float* q, int64_t q_stride, const int64_t* rows,
          const int64_t* next, int n, bool first, float* state) {
  const int64_t D = c.kv.head_dim;
  const int64_t padded = state_offset(D);
  const int64_t stride = state_floats(D);
  alignas(64) float p[R][kKeys];
  const int blocks = (n + kLanes - 1) / kLanes;
  for (int b = 0; b < blocks; ++b) {
    dot_keys<R>(q, q_stride, static_cast<const Kv*>(c.kv.k), rows + b * kLanes, next + b * kLanes,
                D, &p[0][b * kLanes], kKeys);
  }

  float alpha[R];
  for (int r = 0; r < R; ++r) {
    if (c.score.cap != 0) apply_softcap(c.score.cap, p[r], blocks * kLanes);
    for (int i = n; i < blocks * kLanes; ++i) p[r][i] = kMaskedScore;
    float* end = state + r * stride + padded;
    const float old_max = first ? kNoMax : end[kStateMax];
    Vec top = splat(old_max);
    for (int b = 0; b < blocks; ++b) top = max(top, load(&p[r][b * kLanes]));
    const float new_max = max_lane(top);
    Vec total = {};
    for (int b = 0; b < blocks; ++b) {
      const Vec e = exp2(load(&p[r][b * kLanes]) - splat(new_max));
      store(&p[r][b * kLanes], e);
      total = total + e;
    }
    alpha[r] = first ? 0.0f : exp2(splat(old_max - new_max))[0];
    end[kStateSum] = (first ? 0.0f : end[kStateSum] * alpha[r]) + sum(total);
    end[kStateMax] = new_max;
    if (first) {
      for (int64_t d = 0; d < padded; d += kLanes) store(state + r * stride + d, Vec{});
    }
  }

  const Kv* v = static_cast<const Kv*>(c.kv.v);
  const int64_t vectors = D / kLanes;
  int64_t col = 0;
  for (; col + kCols <= vectors; col += kCols) {
    weigh_values<R, kCols>(p, v + col * kLanes, rows, next, n, 0, alpha, state + col * kLanes,
                           stride);
  }
  for (; col < vectors; ++col) {
    weigh_values<R, 1>(p, v + col * kLanes, rows, next, n, 0, alpha, state + col * kLanes, stride);
  }
  if (const int tail = static_cast<int>(D % kLanes)) {
    weigh_values<R, 1>(p, v + col * kLanes, rows, next, n, tail, alpha, state + col * kLanes,
                       stride);
  }
}

// Rows of keys [begin, end), at most kKeys; past the end the last key again.
BRAID_INLINE void rows_of(const KvHead& kv, int64_t begin, int64_t end, int64_t* rows) {
  const int64_t n = end - begin < kKeys ? end - begin : kKeys;
  key_rows(kv, begin, n, rows);
  for (int64_t i = n; i < kKeys; ++i) rows[i] = rows[n - 1];
}

template <class Kv>
BRAID_INLINE void prefetch_rows(const DecodeChunk& c, const int64_t* rows) {
  for (int i = 0; i < kKeys; ++i)
    prefetch_row(static_cast<const Kv*>(c.kv.k) + rows[i], c.kv.head_dim);
  for (int i = 0; i < kKeys; ++i)
    prefetch_row(static_cast<const Kv*>(c.kv.v) + rows[i], c.kv.head_dim);
}

template <class Kv>
void run(const DecodeChunk& c) {
  const int64_t D = c.kv.head_dim;
  const int64_t stride = state_floats(D);
  const int64_t padded = state_offset(D);
  alignas(64) float q[kMaxTile * kMaxDim];
  for (int h = 0; h < c.heads; h += kMaxTile) {
    const int R = c.heads - h < kMaxTile ? c.heads - h : kMaxTile;
    for (int r = 0; r < R; ++r) {
      for (int64_t d = 0; d < D; ++d) q[r * padded + d] = c.q[(h + r) * D + d] * c.score.scale;
      for (int64_t d = D; d < padded; ++d) q[r * padded + d] = 0;
    }
    int64_t rows[2][kKeys];  // this pass' and the next's
    int at = 0;
    rows_of(c.kv, c.begin, c.end, rows[at]);
    if (c.cold && h == 0) prefetch_rows<Kv>(c, rows[at]);
    for (int64_t begin = c.begin; begin < c.end; begin += kKeys, at = 1 - at) {
      const int n = static_cast<int>(c.end - begin < kKeys ? c.end - begin : kKeys);
      int64_t* next = rows[1 - at];
      if (begin + kKeys < c.next_end) {
        rows_of(c.kv, begin + kKeys, c.next_end, next);
      } else {
        std::memcpy(next, rows[at], sizeof(rows[at]));
      }
      const bool first = begin == c.begin && !c.resume;
      float* state = c.state + h * stride;
      switch (R) {
        case 1:
          tile<1, Kv>(c, q, padded, rows[at], next, n, first, state);
          break;
        case 2:
          tile<2, Kv>(c, q, padded, rows[at], next, n, first, state);
          break;
        case 3:
          tile<3, Kv>(c, q, padded, rows[at], next, n, first, state);
          break;
        default:
          tile<4, Kv>(c, q, padded, rows[at], next, n, first, state);
      }
    }
  }
}

}  // namespace

void attention_decode_chunk(const DecodeChunk& c) {
  switch (c.kv.dtype) {
    case DType::f16:
      return run<f16>(c);
    case DType::bf16:
      return run<bf16>(c);
    default:
      return run<float>(c);
  }
}

void attention_decode_merge(const DecodeMerge& m) {
  const int64_t padded = state_offset(m.head_dim);
  for (int64_t h = 0; h < m.heads; ++h) {
    const float* state = m.state + h * state_floats(m.head_dim);
    float top = kNoMax;
    for (int64_t i = 0; i < m.chunks; ++i) {
      const float chunk_max = state[i * m.chunk_stride + padded + kStateMax];
      top = chunk_max > top ? chunk_max : top;
    }
    alignas(64) float o[kMaxDim] = {};
    float total = 0;
    for (int64_t i = 0; i < m.chunks; ++i) {
      const float* chunk = state + i * m.chunk_stride;
      const float weight = exp2(splat(chunk[padded + kStateMax] - top))[0];
      total += chunk[padded + kStateSum] * weight;
      for (int64_t d = 0; d < padded; d += kLanes) {
        store(o + d, fma(load(chunk + d), splat(weight), load(o + d)));
      }
    }
    const float inverse = 1.0f / total;
    float* out = m.out + h * m.head_dim;
    for (int64_t d = 0; d < m.head_dim; ++d) out[d] = o[d] * inverse;
  }
}

}  // namespace braid::cpu::BRAID_ISA
