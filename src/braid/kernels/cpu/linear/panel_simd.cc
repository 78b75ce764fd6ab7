#include "braid/kernels/cpu/linear/isa_kernels.h"

// y[t, n] = sum over k of w[n, k] x[t, k] for many rows t: kPanelRows rows of w are unpacked to a
// buffer, in the reading order of the register tile of 2 vectors by T rows of x.
//
// Unpacked, per 32 columns: words [16][2][kLanes][2] with the codes less their constant; words 2i
// and 2i + 1 are columns 4i, 4i + 2 and 4i + 1, 4i + 3; f32 scale [2][kLanes]; f32 second
// [2][kLanes] for some Kinds. For floats, per column: f32 [2][kLanes].
namespace braid::cpu::BRAID_ISA {
namespace {

[[gnu::always_inline]] constexpr bool has_second(Kind kind) {
  return kind == Kind::minimum || kind == Kind::halves;
}

constexpr int kVecBytes = 4 * kLanes;
constexpr int kWordBytes = 32 * kVecBytes;
constexpr int unpacked_block_bytes(Kind kind) {
  return kWordBytes + (has_second(kind) ? 4 : 2) * kVecBytes;
}

// Columns [k0, k0 + cols) in a panel of rows; k0 and cols are whole units of the format, except for
// the last columns of floats.
struct UnpackArgs {
  const std::byte* w;
  int64_t stride;
  int valid;
  int64_t k0, cols;
  std::byte* panel;
};

template <class F, class Rows>
void unpack_codes(const UnpackArgs& a) {
  constexpr int kBlockBytes = unpacked_block_bytes(F::kKind);
  constexpr int16_t kConstant = F::kKind == Kind::minimum || F::kSigned ? 0 : 1 << F::kShift;
  for (int v = 0; v < 2; ++v) {
    Rows rows(a.w + a.k0 / (32 * F::kBlocks) * F::kBytes, a.stride, v * kLanes, a.valid);
    std::byte* unit = a.panel;
    for (int64_t k = 0; k < a.cols; k += 32 * F::kBlocks) {
      F::unpack(
          rows, [&](int block, const VecI(&codes)[8], Vec first, Vec second)
                    __attribute__((always_inline)) {
                      std::byte* out = unit + block * kBlockBytes + v * kVecBytes;
#pragma GCC unroll 8
                      for (int i = 0; i < 8; ++i) {
                        VecI even, odd;
                        to_words<F::kSigned>(codes[i], kConstant, even, odd);
                        store_i(out + 4 * i * kVecBytes, even);
                        store_i(out + (4 * i + 2) * kVecBytes, odd);
                      }
                      store(reinterpret_cast<float*>(out + kWordBytes), first);
                      if constexpr (has_second(F::kKind)) {
                        store(reinterpret_cast<float*>(out + kWordBytes + 2 * kVecBytes), second);
                      }
                    });
      rows.advance(F::kBytes);
      unit += F::kBlocks * kBlockBytes;
    }
  }
}

template <class F, class Rows>
void unpack_reals(const UnpackArgs& a) {
  for (int v = 0; v < 2; ++v) {
    Rows rows(a.w + a.k0 * F::kElemBytes, a.stride, v * kLanes, a.valid);
    float* out = reinterpret_cast<float*>(a.panel) + v * kLanes;
    int64_t k = 0;
    for (; k + F::kCols <= a.cols; k += F::kCols) {
      F::unpack(
          rows, [&](int i, Vec column)
                    __attribute__((always_inline)) { store(out + (k + i) * kPanelRows, column); });
      rows.advance(16);
    }
    if (k < a.cols) {  // copied: nothing behind a row is read
      const int cols = static_cast<int>(a.cols - k);
      std::byte tail[kLanes][16] = {};
      for (int i = 0; i < kLanes; ++i) std::memcpy(tail[i], rows.at(i, 0), cols * F::kElemBytes);
      F::unpack(
          StridedRows(tail[0], 16, 0, kLanes), [&](int i, Vec column)
                                                   __attribute__((always_inline)) {
                                                     if (i < cols)
                                                       store(out + (k + i) * kPanelRows, column);
                                                   });
    }
  }
}

template <class F>
void unpack_codes_of(const UnpackArgs& a) {
  a.valid == kPanelRows ? unpack_codes<F, StridedRows>(a) : unpack_codes<F, ClampedRows>(a);
}
template <class F>
void unpack_reals_of(const UnpackArgs& a) {
  a.valid == kPanelRows ? unpack_reals<F, StridedRows>(a) : unpack_reals<F, ClampedRows>(a);
}

void unpack(DType dtype, const UnpackArgs& a) {
  switch (dtype) {
    case DType::f32:
      return unpack_reals_of<FormatF32>(a);
    case DType::f16:
      return unpack_reals_of<FormatF16>(a);
    case DType::bf16:
      return unpack_reals_of<FormatBf16>(a);
    case DType::q8_0:
      return unpack_codes_of<FormatQ8_0>(a);
    case DType::q4_0:
      return unpack_codes_of<FormatQ4_0>(a);
    case DType::q4_1:
      return unpack_codes_of<FormatQ4_1>(a);
    case DType::q5_0:
      return unpack_codes_of<FormatQ5_0>(a);
    case DType::q5_1:
      return unpack_codes_of<FormatQ5_1>(a);
    case DType::q4_k:
      return unpack_codes_of<FormatQ4_K>(a);
    case DType::q5_k:
      return unpack_codes_of<FormatQ5_K>(a);
    case DType::q6_k:
      return unpack_codes_of<FormatQ6_K>(a);
    case DType::i32:
      return;
  }
}

// out [T][kPanelRows] (+)= the product of an unpacked panel and a packed tile of T rows of x over
// `cols` columns. Additions follow the stream path's order.
using TileFn = void (*)(const std::byte* panel, int64_t cols, const std::byte* x, float* out,
                        bool accumulate);

template <int T>
BRAID_INLINE void load_sums(Vec (&sum)[T][2], const float* out, bool accumulate) {
#pragma GCC unroll 16
  for (int t = 0; t < T; ++t) {
#pragma GCC unroll 2
    for (int v = 0; v < 2; ++v) {
      sum[t][v] = accumulate ? load(out + t * kPanelRows + v * kLanes) : Vec{};
    }
  }
}
template <int T>
BRAID_INLINE void store_sums(const Vec (&sum)[T][2], float* out) {
#pragma GCC unroll 16
  for (int t = 0; t < T; ++t) {
    store(out + t * kPanelRows, sum[t][0]);
    store(out + t * kPanelRows + kLanes, sum[t][1]);
  }
}

// Calls fn on every sum in a tile.
template <int T, class Fn>
BRAID_INLINE void for_tile(Fn fn) {
#pragma GCC unroll 16
  for (int t = 0; t < T; ++t) {
#pragma GCC unroll 2
    for (int v = 0; v < 2; ++v) fn(t, v);
  }
}

// Without VNNI dot2 is a product and an addition. GCC moves the products of unrolled steps ahead of
// all additions, and the products spill.
constexpr int kUnrolledSteps = kWideCodes ? 16 : 1;

// products = words [kSteps][2][kLanes][2] of w times 2 * kSteps columns of x, codes [T][32].
template <int T, int kSteps>
BRAID_INLINE void dot_words(const std::byte* words, const std::byte* x, VecI (&products)[T][2]) {
  for_tile<T>([&](int t, int v) __attribute__((always_inline)) { products[t][v] = VecI{}; });
#pragma GCC unroll kUnrolledSteps
  for (int i = 0; i < kSteps; ++i) {
    const VecI w0 = load_i(words + 2 * i * kVecBytes);
    const VecI w1 = load_i(words + (2 * i + 1) * kVecBytes);
#pragma GCC unroll 16
    for (int t = 0; t < T; ++t) {
      const VecI xt = broadcast_i(x + 64 * t + 4 * i);
      products[t][0] = dot2(products[t][0], w0, xt);
      products[t][1] = dot2(products[t][1], w1, xt);
    }
  }
}

// sums += products * scale of w * scale of x
template <int T>
BRAID_INLINE void add_scaled(const VecI (&products)[T][2], const std::byte* scales,
                             const std::byte* x_scales, Vec (&sum)[T][2]) {
  const Vec scale0 = load(reinterpret_cast<const float*>(scales));
  const Vec scale1 = load(reinterpret_cast<const float*>(scales + kVecBytes));
#pragma GCC unroll 16
  for (int t = 0; t < T; ++t) {
    const Vec x_scale = broadcast(x_scales + 4 * t);
    sum[t][0] = fma(to_f32(products[t][0]), scale0 * x_scale, sum[t][0]);
    sum[t][1] = fma(to_f32(products[t][1]), scale1 * x_scale, sum[t][1]);
  }
}

// Formats with the same Kind share their tiles.
template <Kind kind, int T>
void code_tile(const std::byte* panel, int64_t cols, const std::byte* x, float* out,
               bool accumulate) {
  Vec sum[T][2];
  load_sums<T>(sum, out, accumulate);
  for (int64_t k = 0; k < cols; k += 32) {
    const std::byte* scales = panel + kWordBytes;
    const std::byte* seconds = scales + 2 * kVecBytes;
    const std::byte* stats = x + linear_detail::kCodeBytes * T;
    VecI products[T][2];
    if constexpr (kind == Kind::halves) {
      dot_words<T, 8>(panel, x, products);
      add_scaled<T>(products, scales, stats, sum);
      dot_words<T, 8>(panel + kWordBytes / 2, x + 32, products);
      add_scaled<T>(products, seconds, stats, sum);
    } else {
      dot_words<T, 16>(panel, x, products);
      add_scaled<T>(products, scales, stats, sum);
      if constexpr (kind == Kind::minimum) {
        const Vec min0 = load(reinterpret_cast<const float*>(seconds));
        const Vec min1 = load(reinterpret_cast<const float*>(seconds + kVecBytes));
#pragma GCC unroll 16
        for (int t = 0; t < T; ++t) {
          const Vec x_sum = broadcast(stats + 4 * (T + t));
          sum[t][0] = fma(min0, x_sum, sum[t][0]);
          sum[t][1] = fma(min1, x_sum, sum[t][1]);
        }
      }
    }
    panel += unpacked_block_bytes(kind);
    x += T * (linear_detail::kCodeBytes + 4 * linear_detail::stats_of(kind, Codes::words));
  }
  store_sums<T>(sum, out);
}

template <int T>
void real_tile(const std::byte* panel, int64_t cols, const std::byte* x, float* out,
               bool accumulate) {
  Vec sum[T][2];
  load_sums<T>(sum, out, accumulate);
  constexpr int kBlock = linear_detail::kRealBlock;
  for (int64_t k0 = 0; k0 < cols; k0 += kBlock) {
    const int64_t count = cols - k0 < kBlock ? cols - k0 : kBlock;
    for (int64_t k = 0; k < count; ++k) {
      const Vec w0 = load(reinterpret_cast<const float*>(panel));
      const Vec w1 = load(reinterpret_cast<const float*>(panel + kVecBytes));
#pragma GCC unroll 16
      for (int t = 0; t < T; ++t) {
        const Vec xt = broadcast(x + 4 * (kBlock * t + k));
        sum[t][0] = fma(w0, xt, sum[t][0]);
        sum[t][1] = fma(w1, xt, sum[t][1]);
      }
      panel += 2 * kVecBytes;
    }
    x += 4 * kBlock * T;
  }
  store_sums<T>(sum, out);
}

// A tile per number of rows.
template <int kMax, class Tile>
struct Tiles {
  TileFn by_rows[kMax + 1] = {};
  template <int T = 1>
  constexpr void fill_from() {
    by_rows[T] = Tile::template run<T>;
    if constexpr (T < kMax) fill_from<T + 1>();
  }
  constexpr Tiles() { fill_from<>(); }
};
struct RealTile {
  template <int T>
  static constexpr TileFn run = real_tile<T>;
};
template <Kind kind>
struct CodeTile {
  template <int T>
  static constexpr TileFn run = code_tile<kind, T>;
};
constexpr Tiles<kRealTile, RealTile> kRealTiles;
template <Kind kind>
constexpr Tiles<kCodeTile, CodeTile<kind>> kCodeTiles;

const TileFn* tiles_of(Kind kind) {
  switch (kind) {
    case Kind::real:
      return kRealTiles.by_rows;
    case Kind::offset:
      return kCodeTiles<Kind::offset>.by_rows;
    case Kind::minimum:
      return kCodeTiles<Kind::minimum>.by_rows;
    case Kind::halves:
      break;
  }
  return kCodeTiles<Kind::halves>.by_rows;
}

// Asks for the lines of the rows below a panel, a share at a time while the panel is multiplied: no
// hardware prefetcher follows the unpacking of many rows at once.
class NextPanel {
 public:
  NextPanel(const WeightArgs& w, int64_t n0, int64_t steps)
      : next_(w.data + n0 * w.stride),
        end_(w.data + (n0 + kPanelRows < w.N ? n0 + kPanelRows : w.N) * w.stride),
        share_((kPanelRows * w.stride / 64 + steps) / steps * 64) {}
  void step() {
    const std::byte* stop = end_ - next_ > share_ ? next_ + share_ : end_;
    for (; next_ < stop; next_ += 64) __builtin_prefetch(next_, 0, 2);
  }

 private:
  const std::byte* next_;
  const std::byte* end_;
  int64_t share_;
};

// Prefetches finish()'s data for rows [t0, t1) while the rows are multiplied.
void prefetch_outputs(const RunArgs& args, const Item& item, int64_t t0, int64_t t1) {
  const WeightArgs& w = args.weights[item.weight];
  for (int64_t t = t0; t < t1; ++t) {
    for (int lane = 0; lane < item.valid; lane += 16) {
      __builtin_prefetch(w.y + t * w.ldy + item.n0 + lane, 1);
      if (args.residual) {
        __builtin_prefetch(args.residual + t * args.ld_residual + item.n0 + lane);
      }
    }
  }
}

// A weight in an item's run: unpacked rows and sums.
struct Part {
  const WeightArgs& w;
  std::byte* panel;
  float* out;  // [rows][kPanelRows]

  Kind kind() const { return linear_detail::kind_of(w.dtype); }
  void unpack_columns(const Item& item, int64_t k0, int64_t cols) const {
    unpack(w.dtype, {.w = w.data + item.n0 * w.stride,
                     .stride = w.stride,
                     .valid = item.valid,
                     .k0 = k0,
                     .cols = cols,
                     .panel = panel});
  }
  // Multiplies rows [t0, t1) of x with columns [k0, k0 + cols) of K; t0 starts a tile.
  void multiply(int64_t t0, int64_t t1, int64_t k0, int64_t cols, int64_t K, float* sums) const {
    const int64_t tile = kind() == Kind::real ? kRealTile : kCodeTile;
    const int64_t row_bytes = linear_detail::packed_bytes_per_row(kind(), Codes::words, K);
    const int64_t skipped = linear_detail::packed_bytes_per_row(kind(), Codes::words, k0);
    const TileFn* tiles = tiles_of(kind());
    for (int64_t t = t0; t < t1; t += tile) {
      const int64_t rows = t1 - t < tile ? t1 - t : tile;
      tiles[rows](panel, cols, w.packed + t * row_bytes + rows * skipped, sums, k0 > 0);
      sums += rows * kPanelRows;
    }
  }
};

}  // namespace

// A gate and its partner are unpacked together: each group of x's rows is read once. A group's sums
// leave the first-level cache only if K takes several unpackings.
void linear_run_panels(const RunArgs& args, int64_t item_begin, int64_t item_end) {
  constexpr int64_t kGroup = linear_detail::kTileMultiple;
  const int64_t chunks = (args.M + args.chunk - 1) / args.chunk;
  const int parts = args.gate == Activation::none ? 1 : 2;
  const bool whole = args.k_block >= args.K;
  const int64_t sums = (whole ? kGroup : args.chunk) * kPanelRows;
  float* out = reinterpret_cast<float*>(args.scratch);
  std::byte* panels = reinterpret_cast<std::byte*>(out + parts * sums);
  const auto rows_of = [](int) { return kPanelRows; };
  for_items(args, chunks, item_begin, item_end, rows_of, [&](const Item& item) {
    const WeightArgs& w = args.weights[item.weight];
    const WeightArgs& partner = args.weights[item.weight + parts - 1];
    const int64_t panel_bytes =
        (args.k_block + 31) / 32 *
        linear_detail::panel_block_bytes(linear_detail::kind_of(w.dtype), kPanelRows);
    const Part part[2] = {{w, panels, out}, {partner, panels + panel_bytes, out + sums}};
    const int64_t t0 = item.chunk * args.chunk;
    const int64_t t1 = t0 + args.chunk < args.M ? t0 + args.chunk : args.M;
    const int64_t steps = (t1 - t0 + kGroup - 1) / kGroup;
    NextPanel next[2] = {NextPanel(w, item.n0 + kPanelRows, steps),
                         NextPanel(partner, item.n0 + kPanelRows, steps)};
    for (int64_t k0 = 0; k0 < args.K; k0 += args.k_block) {
      const int64_t cols = args.K - k0 < args.k_block ? args.K - k0 : args.k_block;
      for (int i = 0; i < parts; ++i) part[i].unpack_columns(item, k0, cols);
      const bool last = k0 + cols == args.K;
      for (int64_t t = t0; t < t1; t += kGroup) {
        const int64_t end = t + kGroup < t1 ? t + kGroup : t1;
        const int64_t at = whole ? 0 : (t - t0) * kPanelRows;
        if (last) prefetch_outputs(args, item, t, end);
        for (int i = 0; i < parts; ++i) {
          part[i].multiply(t, end, k0, cols, args.K, part[i].out + at);
          if (last) next[i].step();
        }
        if (last) finish(args, item, t, end - t, out + at, out + sums + at, kPanelRows);
      }
    }
  });
}

}  // namespace braid::cpu::BRAID_ISA
