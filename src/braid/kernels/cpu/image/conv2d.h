#pragma once

#include <cstddef>
#include <cstdint>

#include "braid/backend/cpu/team.h"
#include "braid/kernels/cpu/isa.h"
#include "braid/tensor/view.h"

namespace braid::cpu {

// A convolution as ops/conv2d.h defines it, or as ops/conv3d.h does, whose pictures are frames:
// pixels are rows, channels are columns.
struct Conv2dParams {
  const float* x = nullptr;         // [B * H * W, C]
  TensorView w;                     // [O, C, kh, kw] or [O, C, kt, kh, kw], f32, f16 or bf16
  const float* bias = nullptr;      // [O], or null
  const float* residual = nullptr;  // [B * out_height * out_width, O], or null
  float* y = nullptr;               // the same shape; may be the residual, not x
  const float* before = nullptr;    // [before_frames * H * W, C], frames before x, or null
  int64_t before_frames = 0;
  int64_t batch = 0;   // B, or frames of y
  int64_t height = 0;  // H
  int64_t width = 0;   // W
  int64_t out_height = 0;
  int64_t out_width = 0;
  int64_t stride = 1;
  int64_t padding = 0;        // of the columns
  int64_t padding_above = 0;  // the first tap of y's first row; negative: rows of x before it
  int64_t upsample = 1;
  int64_t frame_stride = 1;  // the frames' as of ops/conv3d.h
  int64_t frame_upsample = 1;
  int64_t first_lacks = 0;
  bool silu = false;
};

// Bytes of scratch for weights of this shape: the weights in f32 once, and some hundred pixels for
// each thread. 64-byte aligned.
int64_t conv2d_scratch_bytes(const Shape& w, int threads);

// Every thread of the team calls it with the same arguments. As a product of matrices that is never
// written out: the weights are put in panels of outputs by all threads together, then each thread
// takes groups of pixels and gathers their neighbours tap by tap. A pixel's sum runs in f32 over
// taps, then channels, whatever the team.
void conv2d(const Conv2dParams& p, std::byte* scratch, const Team& team, Isa isa = detected_isa());

}  // namespace braid::cpu
