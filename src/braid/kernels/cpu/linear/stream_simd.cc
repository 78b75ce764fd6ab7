#include "braid/kernels/cpu/linear/isa_kernels.h"

// y[t, n] = sum over k of w[n, k] x[t, k] for few rows t: kLanes rows of w at a time stay in
// registers, a block of 32 columns each, and meet every row of x.
namespace braid::cpu::BRAID_ISA {
namespace {

// Distance between a panel's reads and prefetches, along the rows and on into later panels: no
// hardware prefetcher follows that many rows at once.
constexpr int64_t kLead = 10240;

struct Lead {
  int64_t panels, bytes;  // panels below, bytes into their rows
  BRAID_INLINE Lead(int rows, int64_t row_bytes) {
    const int64_t ahead = kLead / rows;
    panels = ahead / row_bytes;
    bytes = ahead - panels * row_bytes;
  }
};

class Prefetcher {
 public:
  // Starts `bytes` into the rows of a panel, with row_bytes in each.
  BRAID_INLINE Prefetcher(const std::byte* panel, int64_t stride, int rows, int64_t row_bytes,
                          int64_t bytes)
      : panel_(panel), stride_(stride), row_bytes_(row_bytes), offset_(bytes), rows_(rows) {}
  // Goes on by `bytes` in each row.
  BRAID_INLINE void step(int64_t bytes) {
    for (due_ += bytes; due_ > 0; due_ -= 64) {
      for (int i = 0; i < rows_; ++i) __builtin_prefetch(panel_ + i * stride_ + offset_);
      offset_ += 64;
      if (offset_ >= row_bytes_) {
        due_ += offset_ - row_bytes_;
        panel_ += rows_ * stride_;
        offset_ = 0;
      }
    }
  }

 private:
  const std::byte* panel_;
  int64_t stride_, row_bytes_, offset_, due_ = 0;
  int rows_;
};

struct PanelArgs {
  const std::byte* w;  // the panel's rows
  int64_t stride, row_bytes;
  int valid;
  Lead lead;
  int64_t K;
  const std::byte* x;  // packed, a tile of M rows
  int64_t M;
  float* out;  // [M][ld]
  int64_t ld;

  BRAID_INLINE Prefetcher prefetcher(int rows) const {
    return Prefetcher(w + lead.panels * rows * stride, stride, rows, row_bytes, lead.bytes);
  }
};

// The products of 16 columns with a digit of a row of x.
template <class F>
BRAID_INLINE VecI dot_half(const VecI* codes, const std::byte* digits) {
  VecI sum{};
  if constexpr (adds_pairs(F::kCodeBits)) {
#pragma GCC unroll 2
    for (int i = 0; i < 4; i += kPairSteps) {
      VecI pairs{};
#pragma GCC unroll 2
      for (int j = i; j < i + kPairSteps; ++j) {
        pairs = add_pairs(pairs, codes[j], broadcast_i(digits + 4 * j));
      }
      sum = widen_pairs(sum, pairs, 1);
    }
  } else {
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) sum = dot4<F::kSigned>(sum, codes[i], broadcast_i(digits + 4 * i));
  }
  return sum;
}

// acc += this block's part: of the row's digits at x, 32 * M bytes apart, and its stats, M dwords
// apart.
template <class F>
BRAID_INLINE Vec add_block(Vec acc, const VecI (&codes)[8], Vec scale, Vec second,
                           const std::byte* x, const std::byte* stats, int64_t M) {
  const Vec x_scale = broadcast(stats);
  const VecI high[2] = {dot_half<F>(codes, x), dot_half<F>(codes + 4, x + 16)};
  const VecI low[2] = {dot_half<F>(codes, x + 32 * M), dot_half<F>(codes + 4, x + 32 * M + 16)};
  if constexpr (F::kKind == Kind::halves) {
    const VecI first = next_digit(high[0]) + low[0] + broadcast_i(stats + 4 * M);
    acc = fma(to_f32(first), scale * x_scale, acc);
    return fma(to_f32(next_digit(high[1]) + low[1] + broadcast_i(stats + 8 * M)), second * x_scale,
               acc);
  }
  const VecI products = next_digit(high[0] + high[1]) + (low[0] + low[1]);
  if constexpr (F::kKind == Kind::minimum) {
    acc = fma(to_f32(products), scale * x_scale, acc);
    return fma(second, broadcast(stats + 4 * M), acc);
  } else {
    return fma(to_f32(products + broadcast_i(stats + 4 * M)), scale * x_scale, acc);
  }
}

template <class F, class Rows, bool kOneRow>
void code_panel(const PanelArgs& a) {
  const int64_t M = kOneRow ? 1 : a.M;
  constexpr int kCodeBytes = linear_detail::kCodeBytes;
  const int64_t block_bytes =
      M * (kCodeBytes + 4 * linear_detail::stats_of(F::kKind, Codes::digits));
  Rows rows(a.w, a.stride, 0, a.valid);
  Prefetcher prefetch = a.prefetcher(kLanes);
  Vec acc{};
  if constexpr (!kOneRow) {
    for (int64_t t = 0; t < M; ++t) store(a.out + t * a.ld, Vec{});
  }
  const std::byte* x = a.x;
  for (int64_t k = 0; k < a.K; k += 32 * F::kBlocks) {
    F::unpack(
        rows, [&](int block, const VecI(&codes)[8], Vec scale, Vec second)
                  __attribute__((always_inline)) {
                    // A block's share of the unit, to spread prefetches evenly.
                    constexpr int kShare = F::kBytes / F::kBlocks;
                    prefetch.step(block == 0 ? F::kBytes - (F::kBlocks - 1) * kShare : kShare);
                    const std::byte* xb = x + block * block_bytes;
                    if constexpr (kOneRow) {
                      acc = add_block<F>(acc, codes, scale, second, xb, xb + kCodeBytes, 1);
                    } else {
                      for (int64_t t = 0; t < M; ++t) {
                        float* sum = a.out + t * a.ld;
                        store(sum, add_block<F>(load(sum), codes, scale, second, xb + 32 * t,
                                                xb + kCodeBytes * M + 4 * t, M));
                      }
                    }
                  });
    x += F::kBlocks * block_bytes;
    rows.advance(F::kBytes);
  }
  if constexpr (kOneRow) store(a.out, acc);
}

// Adds `cols` columns from both row vectors to all M sums. x: in [M][kRealBlock].
template <class F, class Rows>
BRAID_INLINE void add_columns(const Rows (&rows)[2], int cols, const float* x, int64_t M,
                              float* out) {
  Vec w[2][F::kCols];
#pragma GCC unroll 2
  for (int v = 0; v < 2; ++v) {
    F::unpack(
        rows[v], [&](int k, Vec column) __attribute__((always_inline)) { w[v][k] = column; });
  }
  for (int64_t t = 0; t < M; ++t) {
    Vec sum0 = load(out + t * kPanelRows), sum1 = load(out + t * kPanelRows + kLanes);
    const auto add = [&](int k) __attribute__((always_inline)) {
      const Vec xk = splat(x[t * linear_detail::kRealBlock + k]);
      sum0 = fma(w[0][k], xk, sum0);
      sum1 = fma(w[1][k], xk, sum1);
    };
    if (cols == F::kCols) {
#pragma GCC unroll 8
      for (int k = 0; k < F::kCols; ++k) add(k);
    } else {
      for (int k = 0; k < cols; ++k) add(k);
    }
    store(out + t * kPanelRows, sum0);
    store(out + t * kPanelRows + kLanes, sum1);
  }
}

template <class F, class Rows>
void real_panel(const PanelArgs& a) {
  Rows rows[2] = {Rows(a.w, a.stride, 0, a.valid), Rows(a.w, a.stride, kLanes, a.valid)};
  for (int64_t i = 0; i < a.M * kPanelRows; i += kLanes) store(a.out + i, Vec{});
  const auto x = [&](int64_t k) __attribute__((always_inline)) {
    constexpr int kBlock = linear_detail::kRealBlock;
    return reinterpret_cast<const float*>(a.x) + k / kBlock * kBlock * a.M + k % kBlock;
  };
  Prefetcher prefetch = a.prefetcher(kPanelRows);
  int64_t k = 0;
  for (; k + F::kCols <= a.K; k += F::kCols) {
    add_columns<F>(rows, F::kCols, x(k), a.M, a.out);
    rows[0].advance(16);
    rows[1].advance(16);
    prefetch.step(16);
  }
  if (k < a.K) {  // the last columns, copied: nothing behind a row is read
    const int cols = static_cast<int>(a.K - k);
    std::byte tail[kPanelRows][16] = {};
    for (int v = 0; v < 2; ++v) {
      for (int i = 0; i < kLanes; ++i) {
        std::memcpy(tail[v * kLanes + i], rows[v].at(i, 0), cols * F::kElemBytes);
      }
    }
    const StridedRows tail_rows[2] = {StridedRows(tail[0], 16, 0, kPanelRows),
                                      StridedRows(tail[0], 16, kLanes, kPanelRows)};
    add_columns<F>(tail_rows, cols, x(k), a.M, a.out);
  }
}

template <class F>
void code_stream(PanelArgs a) {
  const int rows = a.valid;
  for (int first = 0; first < rows; first += kLanes) {
    a.valid = rows - first < kLanes ? rows - first : kLanes;
    const bool full = a.valid == kLanes;
    if (a.M == 1) {
      full ? code_panel<F, StridedRows, true>(a) : code_panel<F, ClampedRows, true>(a);
    } else {
      full ? code_panel<F, StridedRows, false>(a) : code_panel<F, ClampedRows, false>(a);
    }
    a.w += kLanes * a.stride;
    a.out += kLanes;
  }
}
template <class F>
void real_stream(const PanelArgs& a) {
  a.valid == kPanelRows ? real_panel<F, StridedRows>(a) : real_panel<F, ClampedRows>(a);
}

void stream_panel(DType dtype, const PanelArgs& a) {
  switch (dtype) {
    case DType::f32:
      return real_stream<FormatF32>(a);
    case DType::f16:
      return real_stream<FormatF16>(a);
    case DType::bf16:
      return real_stream<FormatBf16>(a);
    case DType::q8_0:
      return code_stream<FormatQ8_0>(a);
    case DType::q4_0:
      return code_stream<FormatQ4_0>(a);
    case DType::q4_1:
      return code_stream<FormatQ4_1>(a);
    case DType::q5_0:
      return code_stream<FormatQ5_0>(a);
    case DType::q5_1:
      return code_stream<FormatQ5_1>(a);
    case DType::q4_k:
      return code_stream<FormatQ4_K>(a);
    case DType::q5_k:
      return code_stream<FormatQ5_K>(a);
    case DType::q6_k:
      return code_stream<FormatQ6_K>(a);
    case DType::i32:
      return;
  }
}

}  // namespace

void linear_run_stream(const RunArgs& args, int64_t item_begin, int64_t item_end) {
  alignas(64) float out[2][linear_detail::kMaxStreamRows * kPanelRows];
  const auto rows_of = [&](int weight) { return linear_stream_rows(args, weight); };
  for_items(args, 1, item_begin, item_end, rows_of, [&](const Item& item) {
    const int rows = rows_of(item.weight);
    const int parts = args.gate == Activation::none ? 1 : 2;
    for (int part = 0; part < parts; ++part) {
      const WeightArgs& w = args.weights[item.weight + part];
      stream_panel(w.dtype, {.w = w.data + item.n0 * w.stride,
                             .stride = w.stride,
                             .row_bytes = w.row_bytes,
                             .valid = item.valid,
                             .lead = Lead(rows, w.row_bytes),
                             .K = args.K,
                             .x = w.packed,
                             .M = args.M,
                             .out = out[part],
                             .ld = rows});
    }
    finish(args, item, 0, args.M, out[0], out[1], rows);
  });
}

}  // namespace braid::cpu::BRAID_ISA
