#pragma once

#include <string>

#include "braid/ops/conv2d.h"
#include "braid/ops/conv3d.h"

// Choice of the convolution kernel and its tiles: desc -> config. Pure host code.
namespace braid::cuda {

// A convolution as a product of matrices that are never built: M output pixels by O channels,
// summed over K = kt * kh * kw * C.
struct ConvDesc {
  DType dtype = DType::bf16;
  int64_t pixels = 0;    // M, over all pictures
  int64_t inputs = 0;    // pixels of x, over all pictures
  int64_t channels = 0;  // C
  int64_t out = 0;       // O
  int64_t taps = 9;      // kt * kh * kw
  int64_t height = 1;    // of a picture of y
  int64_t width = 1;
  int64_t stride = 1;
  int64_t upsample = 1;
  bool operator==(const ConvDesc&) const = default;
};

struct ConvDevice {
  int compute_capability = 90;  // 10 * major + minor
  int num_sms = 132;
};

// plain: f32 sums. mma and wgmma use tensor cores, wgmma by Hopper's warpgroups and copy engine.
enum class ConvKernel : uint8_t { plain, mma, wgmma };

struct ConvConfig {
  ConvKernel kernel = ConvKernel::plain;
  int block_m = 64;  // pixels per tile
  int block_n = 64;  // channels per tile
  int block_k = 16;
  int stages = 1;  // in shared memory
  // wgmma alone: a tile's pixels are a patch of patch_width columns and block_m / patch_width rows;
  // and a pair of CTAs shares either pixels or channels.
  int patch_width = 0;
  bool shares_pixels = false;
  bool operator==(const ConvConfig&) const = default;
};

ConvDesc conv_desc(const ops::Conv2dAttrs& attrs, const ValueType& x, const ValueType& w);

// A causal convolution's frames as pictures for a plain convolution; the batch is y's frames.
ops::Conv2dAttrs frames_as_pictures(const ops::Conv3dAttrs& attrs, const Shape& x);

// Tensor cores for bf16 pictures whose channels are whole blocks of K; else f32 sums. Fails with
// kUnsupported, naming the desc, where sizes are beyond a launch. Hopper's copy engine brings
// patches of neighbouring pixels, so a stride above 1 takes mma.
ConvConfig choose(const ConvDesc& desc, const ConvDevice& device);

std::string to_string(const ConvDesc& desc);      // "bf16 1048576 x 128, 9 x 128"
std::string to_string(const ConvConfig& config);  // "mma 128x128x64, 3 stages"

}  // namespace braid::cuda
