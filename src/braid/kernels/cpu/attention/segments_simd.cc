#include <algorithm>
#include <limits>

#include "braid/kernels/cpu/attention/segments.h"
#include "braid/kernels/cpu/simd/vec.h"

namespace braid::cpu::BRAID_ISA {
namespace {

constexpr int64_t kTile = 4;  // rows that share a load
constexpr float kNone = -std::numeric_limits<float>::infinity();

// c[i][j] (+)= sum_x a[i][x] b[x][j] for kTile rows: a has rows a_stride apart, b and c too.
BRAID_INLINE void multiply(const float* a, int64_t a_stride, const float* b, int64_t b_stride,
                           float* c, int64_t c_stride, int64_t inner, int64_t columns, bool add) {
  for (int64_t j = 0; j < columns; j += 2 * kLanes) {
    Vec sum[kTile][2];
    for (int64_t i = 0; i < kTile; ++i) {
      sum[i][0] = add ? load(c + i * c_stride + j) : Vec{};
      sum[i][1] = add ? load(c + i * c_stride + j + kLanes) : Vec{};
    }
    for (int64_t x = 0; x < inner; ++x) {
      const Vec b0 = load(b + x * b_stride + j), b1 = load(b + x * b_stride + j + kLanes);
      for (int64_t i = 0; i < kTile; ++i) {
        const Vec factor = splat(a[i * a_stride + x]);
        sum[i][0] = fma(factor, b0, sum[i][0]);
        sum[i][1] = fma(factor, b1, sum[i][1]);
      }
    }
    for (int64_t i = 0; i < kTile; ++i) {
      store(c + i * c_stride + j, sum[i][0]);
      store(c + i * c_stride + j + kLanes, sum[i][1]);
    }
  }
}

struct Scratch {
  float* q;    // [room, padded]
  float* acc;  // [room, padded]
  float* m;    // [room]
  float* l;    // [room]
  float* kt;   // [padded, kSegmentKeys]
  float* v;    // [kSegmentKeys, padded]
  float* s;    // [kTile, kSegmentKeys]
};

Scratch carve(float* at, int64_t padded, int64_t room) {
  Scratch s{};
  const auto take = [&](int64_t n) {
    float* here = at;
    at += n;
    return here;
  };
  s.q = take(room * padded);
  s.acc = take(room * padded);
  s.m = take(room);
  s.l = take(room);
  s.kt = take(kSegmentKeys * padded);
  s.v = take(kSegmentKeys * padded);
  s.s = take(kTile * kSegmentKeys);
  return s;
}

// Rows of `keys` that the query at `position` sees.
Range visible(const SegmentBlock& b, const SegmentKeys& keys, int64_t position) {
  Range seen{0, keys.rows};
  const int64_t at = position - keys.position;
  if (b.window_right >= 0) seen.end = std::clamp<int64_t>(at + b.window_right + 1, 0, keys.rows);
  if (b.window_left >= 0) seen.begin = std::clamp<int64_t>(at - b.window_left, 0, seen.end);
  return seen;
}

// A row of scores against keys [begin, begin + kSegmentKeys) becomes weights and a new state.
// `bias` belongs to the first key, or is null.
void softmax_row(float* s, const Range& seen, float scale, const float* bias, float& m, float& l,
                 float* acc, int64_t padded) {
  Vec top = splat(kNone);
  for (int64_t j = 0; j < kSegmentKeys; ++j) {
    s[j] = seen.begin <= j && j < seen.end ? s[j] * scale : kNone;
  }
  if (bias != nullptr) {
    const int64_t end = std::min(seen.end, kSegmentKeys);
    for (int64_t j = std::max<int64_t>(seen.begin, 0); j < end; ++j) s[j] += bias[j];
  }
  for (int64_t j = 0; j < kSegmentKeys; j += kLanes) top = max(top, load(s + j));
  const float new_m = std::max(m, max_lane(top));
  if (new_m == kNone) {
    std::fill(s, s + kSegmentKeys, 0.0f);
    return;
  }
  Vec total{};
  for (int64_t j = 0; j < kSegmentKeys; j += kLanes) {
    const Vec p = exp(load(s + j) - splat(new_m));
    store(s + j, p);
    total = total + p;
  }
  const float keep = m == kNone ? 0.0f : exp(splat(m - new_m))[0];
  l = l * keep + sum(total);
  m = new_m;
  if (keep == 1.0f) return;
  for (int64_t d = 0; d < padded; d += kLanes) store(acc + d, load(acc + d) * splat(keep));
}

// Columns of queries and keys, columns of values, and both up to whole vectors.
struct Dims {
  explicit Dims(const SegmentBlock& b)
      : k(b.head_dim),
        v(b.value_dim == 0 ? b.head_dim : b.value_dim),
        padded_k(padded_head(k)),
        padded_v(padded_head(v)) {}
  int64_t k, v, padded_k, padded_v;
};

// The first n floats in a row from `from` on, 0 behind them.
BRAID_INLINE Vec load_some(const float* from, int64_t n) {
  return n >= kLanes ? load(from) : n > 0 ? load_n(from, static_cast<int>(n)) : Vec{};
}

void pack_keys(const SegmentKeys& keys, int64_t begin, int64_t count, const Dims& n,
               const Scratch& w) {
  const float *k = keys.k + begin * keys.stride, *v = keys.v + begin * keys.stride;
  for (int64_t d = 0; d < n.k; d += kLanes) {
    for (int64_t j = 0; j < kSegmentKeys; j += kLanes) {
      Vec m[kLanes];
#pragma GCC unroll 16
      for (int i = 0; i < kLanes; ++i) {
        m[i] = j + i < count ? load_some(k + (j + i) * keys.stride + d, n.k - d) : Vec{};
      }
      transpose(m);
#pragma GCC unroll 16
      for (int i = 0; i < kLanes; ++i) store(w.kt + (d + i) * kSegmentKeys + j, m[i]);
    }
  }
  for (int64_t j = 0; j < kSegmentKeys; ++j) {
    for (int64_t d = 0; d < n.padded_v; d += kLanes) {
      store(w.v + j * n.padded_v + d,
            j < count ? load_some(v + j * keys.stride + d, n.v - d) : Vec{});
    }
  }
}

void begin_state(const SegmentBlock& b, const Dims& n, const Scratch& w) {
  const int64_t tiles_end = (b.rows + kTile - 1) / kTile * kTile;
  for (int64_t r = 0; r < tiles_end; ++r) {
    const bool live = r < b.rows, loaded = live && b.load_state;
    for (int64_t d = 0; d < n.padded_k; ++d) {
      w.q[r * n.padded_k + d] = live && d < n.k ? b.q[r * b.q_stride + d] : 0.0f;
    }
    for (int64_t d = 0; d < n.padded_v; ++d) {
      w.acc[r * n.padded_v + d] = loaded && d < n.v ? b.state_o[r * b.state_stride + d] : 0.0f;
    }
    w.m[r] = loaded ? b.state_m[r * b.stat_stride] : kNone;
    w.l[r] = loaded ? b.state_l[r * b.stat_stride] : 0.0f;
  }
}

// Queries as they meet the chunk of the key at position `key`.
void meet_chunk(const SegmentBlock& b, const Dims& n, const Scratch& w, int64_t key) {
  for (int64_t r = 0; r < b.rows; ++r) {
    float* q = w.q + r * n.padded_k;
    const int64_t position = b.position + r;
    const auto growth = static_cast<float>(b.dual->growth(position));
    for (int64_t d = 0; d < n.k; ++d) q[d] = growth * b.q[r * b.q_stride + d];
    ops::turn_heads(b.dual->rope, b.frequencies, b.dual->moves(position, key), 1, 0, q);
  }
}

void end_state(const SegmentBlock& b, const Dims& n, const Scratch& w) {
  for (int64_t r = 0; r < b.rows; ++r) {
    const float* acc = w.acc + r * n.padded_v;
    if (b.out == nullptr) {
      std::copy(acc, acc + n.v, b.state_o + r * b.state_stride);
      b.state_m[r * b.stat_stride] = w.m[r];
      b.state_l[r * b.stat_stride] = w.l[r];
      continue;
    }
    const float inverse = w.l[r] > 0 ? 1.0f / w.l[r] : 0.0f;
    for (int64_t d = 0; d < n.v; ++d) b.out[r * b.out_stride + d] = acc[d] * inverse;
  }
}

}  // namespace

void segment_attention_block(const SegmentBlock& b) {
  const Dims n(b);
  const Scratch w = carve(b.scratch, std::max(n.padded_k, n.padded_v), b.room);
  begin_state(b, n, w);
  int64_t met = -1;  // the end of the chunk that queries are turned for
  for (const SegmentKeys& keys : b.keys) {
    const int64_t first = visible(b, keys, b.position).begin;
    const int64_t end = visible(b, keys, b.position + b.rows - 1).end;
    if (b.dual && first < end && met != b.dual->chunk_end(keys.position)) {
      met = b.dual->chunk_end(keys.position);
      meet_chunk(b, n, w, keys.position);
    }
    for (int64_t begin = first; begin < end; begin += kSegmentKeys) {
      pack_keys(keys, begin, std::min(kSegmentKeys, end - begin), n, w);
      for (int64_t row = 0; row < b.rows; row += kTile) {
        multiply(w.q + row * n.padded_k, n.padded_k, w.kt, kSegmentKeys, w.s, kSegmentKeys, n.k,
                 kSegmentKeys, false);
        for (int64_t i = 0; i < kTile; ++i) {
          Range seen = visible(b, keys, b.position + row + i);
          seen = {seen.begin - begin, std::min(seen.end, end) - begin};
          if (row + i >= b.rows) seen = {0, 0};
          const bool biased = keys.bias != nullptr && row + i < b.rows;
          const float* bias = biased ? keys.bias + (row + i) * keys.bias_stride + begin : nullptr;
          softmax_row(w.s + i * kSegmentKeys, seen, b.scale, bias, w.m[row + i], w.l[row + i],
                      w.acc + (row + i) * n.padded_v, n.padded_v);
        }
        multiply(w.s, kSegmentKeys, w.v, n.padded_v, w.acc + row * n.padded_v, n.padded_v,
                 kSegmentKeys, n.padded_v, true);
      }
    }
  }
  end_state(b, n, w);
}

}  // namespace braid::cpu::BRAID_ISA
