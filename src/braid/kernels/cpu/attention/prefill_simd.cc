#include "braid/kernels/cpu/attention/kv_simd.h"

namespace braid::cpu::BRAID_ISA {
namespace {

constexpr int kRows = static_cast<int>(kTileRows);
constexpr int kCols = kVectorRegisters == 32 ? 4 : 2;
constexpr int64_t kKeys = kPrefillKeys;

// c[r][0 .. C) = c[r] * alpha[r] (0 where alpha is null) + sum_k a[r][k] * b[k], C vectors wide.
template <int C>
BRAID_INLINE void multiply(const float* a, int64_t a_stride, const float* b, int64_t b_stride,
                           int64_t depth, const float* alpha, float* c, int64_t c_stride) {
  Vec acc[kRows][C];
#pragma GCC unroll 6
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int j = 0; j < C; ++j) {
      acc[r][j] = alpha ? load(c + r * c_stride + j * kLanes) * splat(alpha[r]) : Vec{};
    }
  }
  for (int64_t k = 0; k < depth; ++k) {
    Vec x[C];
#pragma GCC unroll 4
    for (int j = 0; j < C; ++j) x[j] = load(b + k * b_stride + j * kLanes);
#pragma GCC unroll 6
    for (int r = 0; r < kRows; ++r) {
      const Vec w = splat(a[r * a_stride + k]);
#pragma GCC unroll 4
      for (int j = 0; j < C; ++j) acc[r][j] = fma(w, x[j], acc[r][j]);
    }
  }
#pragma GCC unroll 6
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int j = 0; j < C; ++j) store(c + r * c_stride + j * kLanes, acc[r][j]);
  }
}

// The same over n columns, a multiple of kLanes.
void multiply_columns(const float* a, int64_t a_stride, const float* b, int64_t b_stride,
                      int64_t depth, const float* alpha, float* c, int64_t c_stride, int64_t n) {
  int64_t vectors = n / kLanes;
  const auto step = [&]<int C>() __attribute__((always_inline)) {
    multiply<C>(a, a_stride, b, b_stride, depth, alpha, c, c_stride);
    b += C * kLanes;
    c += C * kLanes;
    vectors -= C;
  };
  while (vectors >= kCols) step.template operator()<kCols>();
  if constexpr (kCols == 4) {
    if (vectors == 3) return step.template operator()<3>();
    if (vectors == 2) return step.template operator()<2>();
  }
  if (vectors == 1) step.template operator()<1>();
}

// K rows to kt [D, kKeys] f32 and V rows to values [n, padded D] f32, columns past D zero. Columns
// of kt past n are zero up to a whole vector.
template <class Kv>
void convert(const KvHead& kv, int64_t begin, int64_t n, float* kt, float* values) {
  const int64_t D = kv.head_dim;
  const int64_t padded = state_offset(D);
  const Kv* k = static_cast<const Kv*>(kv.k);
  const Kv* v = static_cast<const Kv*>(kv.v);
  int64_t rows[kKeys];
  key_rows(kv, begin, n, rows);
  for (int64_t d = 0; d < D; d += kLanes) {
    const int width = static_cast<int>(D - d < kLanes ? D - d : kLanes);
    for (int64_t i = 0; i < n; i += kLanes) {
      Vec m[kLanes];
#pragma GCC unroll 16
      for (int j = 0; j < kLanes; ++j) {
        m[j] = i + j >= n        ? Vec{}
               : width == kLanes ? load(k + rows[i + j] + d)
                                 : load_n(k + rows[i + j] + d, width);
      }
      transpose(m);
#pragma GCC unroll 16
      for (int j = 0; j < kLanes; ++j) store(kt + (d + j) * kKeys + i, m[j]);
    }
  }
  for (int64_t i = 0; i < n; ++i) {
    int64_t d = 0;
    for (; d + kLanes <= D; d += kLanes) store(values + i * padded + d, load(v + rows[i] + d));
    if (d < D) {
      store(values + i * padded + d, load_n(v + rows[i] + d, static_cast<int>(D - d)));
      d += kLanes;
    }
    for (; d < padded; d += kLanes) store(values + i * padded + d, Vec{});
  }
}

void convert(const KvHead& kv, int64_t begin, int64_t n, float* kt, float* values) {
  switch (kv.dtype) {
    case DType::f16:
      return convert<f16>(kv, begin, n, kt, values);
    case DType::bf16:
      return convert<bf16>(kv, begin, n, kt, values);
    default:
      return convert<float>(kv, begin, n, kt, values);
  }
}

// Scores outside columns [lo, hi) become masked; n a multiple of kLanes.
BRAID_INLINE void mask(float* s, int64_t n, int64_t lo, int64_t hi) {
  for (int64_t i = 0; i < n; ++i) {
    if (i < lo || i >= hi) s[i] = kMaskedScore;
  }
}

// A block's (query, head) rows, heads innermost, padded to whole tiles with rows of zeros.
struct Rows {
  int64_t count, padded_count, padded_dim;
  float* q;       // [padded_count, padded_dim] scaled
  float* o;       // [padded_count, padded_dim]
  float* top;     // [padded_count] running maximum
  float* total;   // [padded_count, kStatePad] sums per lane
  float* kt;      // [padded_dim, kKeys]
  float* values;  // [kKeys, padded_dim]
  float* scores;  // [kRows, kKeys]
};

Rows lay_out(const PrefillBlock& b) {
  Rows r;
  r.count = b.queries * b.heads;
  r.padded_count = (r.count + kRows - 1) / kRows * kRows;
  r.padded_dim = state_offset(b.kv.head_dim);
  float* p = b.scratch;
  const auto take = [&](int64_t n) __attribute__((always_inline)) {
    float* part = p;
    p += n;
    return part;
  };
  r.q = take(r.padded_count * r.padded_dim);
  r.o = take(r.padded_count * r.padded_dim);
  r.top = take((r.padded_count + kStatePad - 1) / kStatePad * kStatePad);
  r.total = take(r.padded_count * kStatePad);
  r.kt = take(r.padded_dim * kKeys);
  r.values = take(r.padded_dim * kKeys);
  r.scores = take(kRows * kKeys);
  return r;
}

void load_queries(const PrefillBlock& b, const Rows& rows) {
  const int64_t D = b.kv.head_dim;
  const int64_t dim = rows.padded_dim;
  for (int64_t r = 0; r < rows.padded_count; ++r) {
    float* q = rows.q + r * dim;
    const float* src = b.q + r / b.heads * b.q_stride + r % b.heads * D;
    for (int64_t d = 0; d < dim; d += kLanes) {
      const int64_t left = r < rows.count ? D - d : 0;
      const Vec x = left >= kLanes ? load(src + d)
                    : left > 0     ? load_n(src + d, static_cast<int>(left))
                                   : Vec{};
      store(q + d, x * splat(b.score.scale));
      store(rows.o + r * dim + d, Vec{});
    }
    rows.top[r] = kNoMax;
    for (int64_t i = 0; i < kStatePad; i += kLanes) store(rows.total + r * kStatePad + i, Vec{});
  }
}

// Queries as they meet the keys of `key`'s chunk.
void meet_chunk(const PrefillBlock& b, const Rows& rows, int64_t key) {
  const ops::DualChunks& dual = *b.dual;
  const int64_t D = b.kv.head_dim;
  for (int64_t i = 0; i < b.queries; ++i) {
    const int64_t position = b.position + i;
    const float scale = b.score.scale * static_cast<float>(dual.growth(position));
    float* q = rows.q + i * b.heads * rows.padded_dim;
    for (int64_t h = 0; h < b.heads; ++h) {
      const float* src = b.q + i * b.q_stride + h * D;
      for (int64_t d = 0; d < D; ++d) q[h * rows.padded_dim + d] = src[d] * scale;
    }
    ops::turn_heads(dual.rope, {b.frequencies, static_cast<size_t>(dual.rope.rotary_dim / 2)},
                    dual.moves(position, key), b.heads, rows.padded_dim, q);
  }
}

// Rows [first, first + kRows) against the n converted keys that begin at `begin`.
void update_tile(const PrefillBlock& b, const Rows& rows, int64_t first, int64_t begin, int64_t n) {
  const auto position = [&](int64_t r) __attribute__((always_inline)) {
    return b.position + (r < rows.count ? r : rows.count - 1) / b.heads;
  };
  const int64_t first_position = position(first);
  const int64_t last_position = position(first + kRows - 1);
  if (begin > last_position) return;
  if (b.window > 0 && begin + n <= first_position - b.window + 1) return;
  const int64_t seen = last_position + 1 - begin < n ? last_position + 1 - begin : n;
  const int64_t columns = (seen + kLanes - 1) / kLanes * kLanes;
  const int64_t dim = rows.padded_dim;

  multiply_columns(rows.q + first * dim, dim, rows.kt, kKeys, b.kv.head_dim, nullptr, rows.scores,
                   kKeys, columns);
  const bool cut = columns > seen || begin + seen > first_position + 1 ||
                   (b.window > 0 && begin <= last_position - b.window);
  for (int r = 0; r < kRows && (cut || b.score.cap != 0); ++r) {
    float* s = rows.scores + r * kKeys;
    if (b.score.cap != 0) apply_softcap(b.score.cap, s, columns);
    const int64_t at = position(first + r);
    const int64_t seen_here = at + 1 - begin < n ? at + 1 - begin : n;
    if (cut) mask(s, columns, b.window > 0 ? at - b.window + 1 - begin : 0, seen_here);
  }

  // alpha = 2^(old maximum - new maximum), all rows in one go.
  constexpr int kPadded = (kRows + kLanes - 1) / kLanes * kLanes;
  float* top = rows.top + first;
  alignas(64) float new_top[kPadded] = {};
  alignas(64) float alpha[kPadded] = {};
  for (int r = 0; r < kRows; ++r) {
    const float* s = rows.scores + r * kKeys;
    Vec peak = splat(top[r]);
    for (int64_t i = 0; i < columns; i += kLanes) peak = max(peak, load(s + i));
    new_top[r] = max_lane(peak);
    alpha[r] = top[r] - new_top[r];
    top[r] = new_top[r];
  }
  for (int i = 0; i < kPadded; i += kLanes) store(alpha + i, exp2(load(alpha + i)));
  for (int r = 0; r < kRows; ++r) {
    float* s = rows.scores + r * kKeys;
    float* total = rows.total + (first + r) * kStatePad;
    Vec sums = load(total) * splat(alpha[r]);
    for (int64_t i = 0; i < columns; i += kLanes) {
      const Vec e = exp2(load(s + i) - splat(new_top[r]));
      store(s + i, e);
      sums = sums + e;
    }
    store(total, sums);
  }
  multiply_columns(rows.scores, kKeys, rows.values, dim, seen, alpha, rows.o + first * dim, dim,
                   dim);
}

void store_outputs(const PrefillBlock& b, const Rows& rows) {
  const int64_t D = b.kv.head_dim;
  for (int64_t r = 0; r < rows.count; ++r) {
    const float inverse = 1.0f / sum(load(rows.total + r * kStatePad));
    const float* o = rows.o + r * rows.padded_dim;
    float* out = b.out + r / b.heads * b.out_stride + r % b.heads * D;
    for (int64_t d = 0; d < D; ++d) out[d] = o[d] * inverse;
  }
}

}  // namespace

void attention_prefill_block(const PrefillBlock& b) {
  const Rows rows = lay_out(b);
  load_queries(b, rows);
  const int64_t end = b.position + b.queries;
  int64_t begin = b.window > 0 ? b.position - b.window + 1 : 0;
  if (begin < 0) begin = 0;
  int64_t same_end = b.dual ? begin : end;  // of keys that the loaded queries meet
  for (int64_t n = 0; begin < end; begin += n) {
    if (begin == same_end) {
      meet_chunk(b, rows, begin);
      same_end = b.dual->chunk_end(begin) < end ? b.dual->chunk_end(begin) : end;
    }
    n = same_end - begin < kKeys ? same_end - begin : kKeys;
    convert(b.kv, begin, n, rows.kt, rows.values);
    for (int64_t first = 0; first < rows.padded_count; first += kRows) {
      update_tile(b, rows, first, begin, n);
    }
  }
  store_outputs(b, rows);
}

}  // namespace braid::cpu::BRAID_ISA
