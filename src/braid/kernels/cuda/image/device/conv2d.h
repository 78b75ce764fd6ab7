#pragma once

#include "braid/backend/cuda/launch.h"
#include "braid/kernels/cuda/image/conv_config.h"
#include "braid/kernels/cuda/pointwise/device/operand.h"

namespace braid::cuda {

// The op conv2d, or conv3d, whose frames are pictures; sums in f32.
struct Conv2dParams {
  TensorView x;             // f32 or bf16 [B * H * W, C]
  TensorView before;        // as x [Tb * H * W, C], frames before x, or absent
  const void* w = nullptr;  // as x [O, kt, kh, kw, C]: of pack_conv_weights
  int64_t kernel_frames = 1, kernel_height = 0, kernel_width = 0;
  int64_t frame_stride = 1, frame_upsample = 1, first_lacks = 0;  // as of ops/conv3d.h
  TensorView bias;                                                // f32, f16 or bf16 [O], or absent
  TensorView residual;  // as x [B * Hout * Wout, O], or absent
  TensorView y;         // as x
  ops::Conv2dAttrs attrs;
  int num_sms = 0;

  // Whether a picture of y comes from other pictures of x than its own.
  bool joins_frames() const { return kernel_frames > 1 || frame_stride > 1 || frame_upsample > 1; }
};

// Loads the kernel and allows it its shared memory; once, outside capture.
void load_conv2d(DType dtype, const ConvConfig& config, bool joins_frames);

// Fails with kUnsupported where no kernel has the config.
void conv2d(const Conv2dParams& params, const ConvConfig& config, const LaunchContext& context);

// [O, C, taps ...] in any float to [O, taps ..., C] in f32 or bf16, device memory.
void pack_conv_weights(const TensorView& w, void* packed, DType dtype,
                       const LaunchContext& context);

}  // namespace braid::cuda
