#pragma once

#include "braid/kernels/cuda/activation.cuh"
#include "braid/kernels/cuda/pointwise/device/vector.cuh"
#include "braid/kernels/cuda/ptx/barrier.h"

// Shared by convolution kernels: a pixel's neighbours, and the end of a sum.
namespace braid::cuda {

// A convolution kernel's operands.
struct ConvArgs {
  const void *x, *before, *w;  // [B * H * W, C], [Tb * H * W, C] or null, [O, kt * kh * kw * C]
  const void* bias;            // [O] or null
  DType bias_dtype;
  const void* residual;  // [M, O] or null
  void* y;               // [M, O]
  int64_t pixels;        // M
  int height, width;     // of x
  int out_height, out_width;
  int channels, out;  // C, O
  int frames;         // of x, or pictures
  int before_frames;  // Tb
  int kernel_frames, kernel_height, kernel_width;
  int k;  // kt * kh * kw * C
  int stride, padding, padding_above, upsample;
  int frame_stride, frame_upsample, first_lacks;
  bool silu;
};

// An output pixel's window in the input.
struct ConvWindow {
  int picture;  // or frame; -1: no pixel
  int y, x;     // of the first tap, before upsampling is undone
};

struct ConvTap {
  int frame = 0, y = 0, x = 0;
};

__device__ inline ConvWindow window_of(const ConvArgs& a, int64_t pixel) {
  if (pixel >= a.pixels) return {-1, 0, 0};
  const auto p = static_cast<uint32_t>(pixel), width = static_cast<uint32_t>(a.out_width);
  const uint32_t row = p / width, picture = row / static_cast<uint32_t>(a.out_height);
  return {static_cast<int>(picture),
          static_cast<int>(row - picture * a.out_height) * a.stride - a.padding_above,
          static_cast<int>(p - row * width) * a.stride - a.padding};
}

struct ConvFrame {
  bool before;  // of the frames before x, or of x
  int at;
};

// The frame under a tap of y's frame `t`. Without frames before x the first frame stands for them.
__device__ inline ConvFrame source_frame(const ConvArgs& a, int t, int tap) {
  const int s = t * a.frame_stride + tap - (a.kernel_frames - 1), up = a.frame_upsample;
  if (s < 0 && a.before != nullptr) {
    return {true, a.before_frames - 1 - (up == 1 ? -1 - s : (-1 - s) / up)};
  }
  const int at = max(s, 0) + a.first_lacks;
  return {false, up == 1 ? at : at / up};
}

// The pixel under a tap, in x or in the frames before x; null outside of the picture.
template <bool kFrames, class T>
__device__ inline const T* source(const ConvArgs& a, const ConvWindow& w, const ConvTap& tap) {
  const int y = w.y + tap.y, x = w.x + tap.x;
  const bool inside =
      w.picture >= 0 && y >= 0 && x >= 0 && y < a.height * a.upsample && x < a.width * a.upsample;
  if (!inside) return nullptr;
  const void* from = a.x;
  int picture = w.picture;
  if constexpr (kFrames) {
    const ConvFrame frame = source_frame(a, picture, tap.frame);
    if (frame.before) from = a.before;
    picture = frame.at;
  }
  const int up = a.upsample;
  const int row = up == 1 ? y : up == 2 ? y >> 1 : y / up;
  const int column = up == 1 ? x : up == 2 ? x >> 1 : x / up;
  const int pixel = (picture * a.height + row) * a.width + column;
  return static_cast<const T*>(from) + int64_t{pixel} * a.channels;
}

__device__ inline float bias_of(const ConvArgs& a, int o) {
  float bias[1] = {0};
  if (a.bias) load_constant(a.bias, a.bias_dtype, o, bias);
  return bias[0];
}

__device__ inline float finish(const ConvArgs& a, float sum) {
  return a.silu ? activate(false, sum) : sum;
}

// Two neighbouring channels of bf16 outputs, from channel o on, an even number.
struct ConvColumns {
  int o;
  float bias[2] = {0, 0};

  __device__ ConvColumns(const ConvArgs& a, int first) : o(first) {
    if (o < a.out) bias[0] = bias_of(a, o);
    if (o + 1 < a.out) bias[1] = bias_of(a, o + 1);
  }

  // Output pixel m, from both channels' sums.
  __device__ void store(const ConvArgs& a, int64_t m, float sum0, float sum1) const {
    if (o >= a.out || m >= a.pixels) return;
    using bf16 = __nv_bfloat16;
    const auto* residual = static_cast<const bf16*>(a.residual);
    auto* y = static_cast<bf16*>(a.y);
    const int64_t at = m * a.out + o;
    float v[2] = {finish(a, sum0 + bias[0]), finish(a, sum1 + bias[1])};
    if (a.out % 2 == 0) {
      if (residual) {
        const float2 r = widen_pair<bf16>(*reinterpret_cast<const uint32_t*>(residual + at));
        v[0] += r.x, v[1] += r.y;
      }
      *reinterpret_cast<uint32_t*>(y + at) = narrow_pair<bf16>(v[0], v[1]);
      return;
    }
    for (int e = 0; e < (o + 1 < a.out ? 2 : 1); ++e) {
      if (residual) v[e] += __bfloat162float(residual[at + e]);
      y[at + e] = __float2bfloat16_rn(v[e]);
    }
  }
};

}  // namespace braid::cuda
