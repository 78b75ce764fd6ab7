#pragma once

#include "braid/program/builder.h"

namespace braid::ops {

// Causal convolution over the frames of a video, whose pixels are rows (frame, row, column): a
// frame meets itself and the kt - 1 frames before it.
//   y = silu(sum over kt, ky, kx, c of w[o, c, kt, ky, kx] * u[t * frame_stride + kt - (Kt - 1),
//            y * stride + ky - padding, x * stride + kx - padding, c] + bias[o]) + residual
// where u is x with each pixel repeated `upsample` times in both directions and each frame
// `frame_upsample` times, with `first_once` all frames but the first. u is never written out.
// Frames before the first are the last ones of `before`, repeated alike: the same value of the
// chunk of frames before this one. Without it they are the first frame again. Outside a frame u is
// 0. Every kernel sums in f32.
// Inputs: x [T * H * W, C] of any float, w [O, C, Kt, Kh, Kw] of any float, bias [O] or absent,
// residual as the output or absent, before [Tb * H * W, C] or absent, Tb * frame_upsample at least
// Kt - 1. Output: [Tout * Hout * Wout, O] with the dtype of x; 2 * padding + 1 = Kh = Kw. With
// `rows` only that many rows of each frame from `first_row` on are computed, and residual and
// output have these alone.
struct Conv3dAttrs {
  int64_t height = 0;   // H
  int64_t width = 0;    // W
  int64_t stride = 1;   // of rows and columns
  int64_t padding = 0;  // pixels of 0 on each side
  int64_t upsample = 1;
  int64_t frame_stride = 1;
  int64_t frame_upsample = 1;
  bool first_once = false;
  int64_t first_row = 0;
  int64_t rows = 0;  // 0: all
  bool silu = false;
  bool operator==(const Conv3dAttrs&) const = default;
  template <class F>
  void fields(F&& f) const {
    f("height", height);
    f("width", width);
    if (stride != 1) f("stride", stride);
    if (padding != 0) f("padding", padding);
    if (upsample != 1) f("upsample", upsample);
    if (frame_stride != 1) f("frame_stride", frame_stride);
    if (frame_upsample != 1) f("frame_upsample", frame_upsample);
    if (first_once) f("first_once", first_once);
    if (rows != 0) f("first_row", first_row);
    if (rows != 0) f("rows", rows);
    if (silu) f("silu", silu);
  }

  // Output pixels along an axis with `size` pixels.
  int64_t out_size(int64_t size) const { return (((size * upsample) - 1) / stride) + 1; }
  int64_t out_height() const { return rows > 0 ? rows : out_size(height); }
  int64_t out_width() const { return out_size(width); }
  // Copies of the first frame that u lacks.
  int64_t first_lacks() const { return first_once ? frame_upsample - 1 : 0; }
  int64_t out_frames(int64_t frames) const {
    return (((frames * frame_upsample) - first_lacks() - 1) / frame_stride) + 1;
  }
  // Rows of 0 before the first tap of the first computed row; negative: skipped rows.
  int64_t padding_above() const { return padding - (first_row * stride); }
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
