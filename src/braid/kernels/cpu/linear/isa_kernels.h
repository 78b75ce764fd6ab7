#pragma once

// Shared by a LinearIsa's sources. For *_simd.cc only.

#include "braid/kernels/cpu/linear/formats.h"

namespace braid::cpu::BRAID_ISA {

using linear_detail::Activation;
using linear_detail::Codes;
using linear_detail::kMaxTile;
using linear_detail::PackArgs;
using linear_detail::RunArgs;
using linear_detail::WeightArgs;

constexpr int kPanelRows = 2 * kLanes;

// Rows of x per register tile: 2 vectors of weight rows by kTile, in f32 sums and, for codes,
// equally many i32 sums.
constexpr int kRealTile = kLanes == 16 ? 12 : kLanes == 8 ? 6 : 4;
constexpr int kCodeTile = kLanes == 16 ? 6 : 4;
static_assert(kRealTile <= kMaxTile && linear_detail::kTileMultiple % kRealTile == 0 &&
              linear_detail::kTileMultiple % kCodeTile == 0);

void linear_pack(const PackArgs& args, int64_t tile_begin, int64_t tile_end);
void linear_run_stream(const RunArgs& args, int64_t item_begin, int64_t item_end);
void linear_run_panels(const RunArgs& args, int64_t item_begin, int64_t item_end);

// Weight rows per work item: floats sum in a chain per row, and need two vectors of rows to hide a
// chain's latency. A gate and its partner go together.
BRAID_INLINE int linear_stream_rows(const RunArgs& args, int weight) {
  const auto real = [&](int w) __attribute__((always_inline)) {
    return linear_detail::kind_of(args.weights[w].dtype) == Kind::real;
  };
  return real(weight) || (args.gate != Activation::none && real(1)) ? kPanelRows : kLanes;
}

// A work item: a weight's rows from n0 on, and a chunk of x.
struct Item {
  int weight;
  int64_t chunk, n0;
  int valid;  // existing rows of the weight from n0 on, at most rows_of(weight)
};

// Calls fn(item) for the items [begin, end), with `rows_of(weight)` weight rows per item.
template <class RowsOf, class Fn>
BRAID_INLINE void for_items(const RunArgs& args, int64_t chunks, int64_t begin, int64_t end,
                            RowsOf rows_of, Fn fn) {
  for (int w = 0; w < args.num_weights && begin < end; ++w) {
    const int64_t rows = rows_of(w), N = args.weights[w].N, panels = (N + rows - 1) / rows;
    const int64_t count = panels * chunks;
    if (begin < count) {
      int64_t chunk = begin / panels, n0 = begin % panels * rows;
      for (int64_t left = (end < count ? end : count) - begin; left > 0; --left) {
        fn(Item{w, chunk, n0, static_cast<int>(N - n0 < rows ? N - n0 : rows)});
        n0 += rows;
        if (n0 >= N) {
          n0 = 0;
          ++chunk;
        }
      }
      begin = count;
    }
    begin -= count;
    end -= count;
  }
}

BRAID_INLINE Vec activate(Activation activation, Vec x) {
  // gelu's tanh form: x (1 + tanh u) / 2 = x / (1 + exp(-2u)).
  Vec z = x;
  if (activation == Activation::gelu_tanh) {
    z = splat(1.5957691216f) * (x + splat(0.044715f) * x * x * x);
  }
  return x / (splat(1.0f) + exp(Vec{} - z));
}

// y[t, n0..] = a + bias, then the gate with b, then the residual, for `rows` rows of x from t0 on.
// a and b are f32 [rows][ld], ld a multiple of kLanes; b only with a gate.
BRAID_INLINE void finish(const RunArgs& args, const Item& item, int64_t t0, int64_t rows,
                         const float* a, const float* b, int64_t ld) {
  const WeightArgs& w = args.weights[item.weight];
  for (int64_t t = 0; t < rows; ++t) {
    for (int lane = 0; lane < item.valid; lane += kLanes) {
      const int64_t n = item.n0 + lane;
      const int count = item.valid - lane < kLanes ? item.valid - lane : kLanes;
      const auto at = [&](const float* p) __attribute__((always_inline)) {
        return count == kLanes ? load(p) : load_n(p, count);
      };
      Vec y = load(a + t * ld + lane);
      if (w.bias) y = y + at(w.bias + n);
      if (args.gate != Activation::none) {
        Vec up = load(b + t * ld + lane);
        if (args.weights[1].bias) up = up + at(args.weights[1].bias + n);
        y = activate(args.gate, y) * up;
      }
      if (args.residual) y = y + at(args.residual + (t0 + t) * args.ld_residual + n);
      float* out = w.y + (t0 + t) * w.ldy + n;
      if (count == kLanes) {
        store(out, y);
      } else {
        store_n(out, y, count);
      }
    }
  }
}

}  // namespace braid::cpu::BRAID_ISA
