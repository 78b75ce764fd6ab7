#pragma once

#include "braid/program/builder.h"

namespace braid::ops {

// Causal convolution over the frames of a video, whose pixels are rows (frame, row, column): a
// frame meets itself and the kt - 1 frames before it.
//   y = silu(sum over kt, ky, kx, c of w[o, c, kt, ky, kx] * u[t + kt - (Kt - 1), y + ky - padding,
//            x + kx - padding, c] + bias[o]) + residual
// Frames before the first are the last ones of `before`, the same value of the chunk of frames
// before this one; without it they are the first frame again. Outside a frame u is 0.
// Inputs: x [T * H * W, C] of any float, w [O, C, Kt, Kh, Kw] of any float, bias [O] or absent,
// residual [T * H * W, O] or absent, before [Tb * H * W, C] or absent, Tb at least Kt - 1. Output:
// [T * H * W, O] with the dtype of x; 2 * padding + 1 = Kh = Kw. With `rows` only that many rows of
// each frame from `first_row` on are computed, and residual and output have these alone.
struct Conv3dAttrs {
  int64_t height = 0;   // H
  int64_t width = 0;    // W
  int64_t padding = 0;  // pixels of 0 on each side
  int64_t first_row = 0;
  int64_t rows = 0;  // 0: all
  bool silu = false;
  bool operator==(const Conv3dAttrs&) const = default;
  template <class F>
  void fields(F&& f) const {
    f("height", height);
    f("width", width);
    if (padding != 0) f("padding", padding);
    if (rows != 0) f("first_row", first_row);
    if (rows != 0) f("rows", rows);
    if (silu) f("silu", silu);
  }

  int64_t out_height() const { return rows > 0 ? rows : height; }
};

extern const OpDef kConv3d;

struct Conv3dInputs {
  ValueId x = kNoValue;
  ValueId w = kNoValue;
  ValueId bias = kNoValue;
  ValueId residual = kNoValue;
  ValueId before = kNoValue;
};
ValueId conv3d(Builder& b, const Conv3dInputs& in, const Conv3dAttrs& attrs);

}  // namespace braid::ops
