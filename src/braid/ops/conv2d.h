#pragma once

#include "braid/program/builder.h"

namespace braid::ops {

// Two-dimensional convolution over B pictures, whose pixels are rows (picture, row, column):
//   y = silu(sum over ky, kx, c of w[o, c, ky, kx] * u[y * stride + ky - padding,
//            x * stride + kx - padding, c] + bias[o]) + residual
// where u is x with each pixel repeated `upsample` times in both directions, and 0 outside. u is
// never written out. Every kernel sums in f32.
// Inputs: x [B * H * W, C] of any float, w [O, C, kh, kw] of any float, bias [O] or absent,
// residual [B * Hout * Wout, O] or absent. Output: [B * Hout * Wout, O] with the dtype of x, where
// Hout = (H * upsample + 2 * padding - kh) / stride + 1, Wout alike. With `rows` only that many
// rows of each picture from `first_row` on are computed, and are the output; Hout is then `rows`.
struct Conv2dAttrs {
  int64_t batch = 1;   // B
  int64_t height = 0;  // H
  int64_t width = 0;   // W
  int64_t stride = 1;
  int64_t padding = 0;   // pixels of 0 on each side
  int64_t upsample = 1;  // nearest neighbour, before the convolution
  int64_t first_row = 0;
  int64_t rows = 0;  // 0: all
  bool silu = false;
  bool operator==(const Conv2dAttrs&) const = default;
  template <class F>
  void fields(F&& f) const {
    if (batch != 1) f("batch", batch);
    f("height", height);
    f("width", width);
    if (stride != 1) f("stride", stride);
    if (padding != 0) f("padding", padding);
    if (upsample != 1) f("upsample", upsample);
    if (rows != 0) f("first_row", first_row);
    if (rows != 0) f("rows", rows);
    if (silu) f("silu", silu);
  }

  // Output pixels along an axis with `size` pixels under a kernel with `k` taps.
  int64_t out_size(int64_t size, int64_t k) const {
    return ((size * upsample) + (2 * padding) - k) / stride + 1;
  }
  int64_t out_height(int64_t k) const { return rows > 0 ? rows : out_size(height, k); }
  int64_t out_width(int64_t k) const { return out_size(width, k); }
  // Rows of 0 before the first tap of the first computed row; negative: skipped rows.
  int64_t padding_above() const { return padding - (first_row * stride); }
};

extern const OpDef kConv2d;

struct Conv2dInputs {
  ValueId x = kNoValue;
  ValueId w = kNoValue;
  ValueId bias = kNoValue;
  ValueId residual = kNoValue;
};
ValueId conv2d(Builder& b, const Conv2dInputs& in, const Conv2dAttrs& attrs);

}  // namespace braid::ops
