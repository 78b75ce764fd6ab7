#include "braid/kernels/cuda/image/conv_config.h"

#include "braid/base/error.h"
#include "braid/base/math.h"

namespace braid::cuda {

ConvDesc conv_desc(const ops::Conv2dAttrs& a, const ValueType& x, const ValueType& w) {
  const int64_t height = a.out_height(w.shape[-2]), width = a.out_width(w.shape[-1]);
  return {.dtype = x.dtype,
          .pixels = a.batch * height * width,
          .channels = x.shape[1],
          .out = w.shape[0],
          .taps = w.shape.elems() / (w.shape[0] * w.shape[1])};
}

ops::Conv2dAttrs frames_as_pictures(const ops::Conv3dAttrs& a, const Shape& x) {
  return {.batch = x[0] / (a.height * a.width),
          .height = a.height,
          .width = a.width,
          .padding = a.padding,
          .first_row = a.first_row,
          .rows = a.rows,
          .silu = a.silu};
}

ConvConfig choose(const ConvDesc& d, int compute_capability) {
  constexpr int64_t kMost = int64_t{1} << 31;
  const bool known = d.dtype == DType::f32 || d.dtype == DType::bf16;
  if (!known || d.pixels >= kMost || d.taps * d.channels >= kMost || ceil_div(d.out, 64) > 65535) {
    fail(ErrorCode::kUnsupported, "convolution: no kernel for {}", to_string(d));
  }
  constexpr int kBlockK = 64;
  if (d.dtype == DType::bf16 && d.channels % kBlockK == 0) {
    // Half of a wgmma's columns stay empty below 64 channels.
    const bool wgmma = compute_capability == 90 && d.out >= 64;
    return {.kernel = wgmma ? ConvKernel::wgmma : ConvKernel::mma,
            .block_m = wgmma ? 256 : 128,
            .block_n = 128,
            .block_k = kBlockK,
            .stages = wgmma ? 4 : 3};
  }
  return {};
}

std::string to_string(const ConvDesc& d) {
  return fmt::format("{} {} x {}, {} x {}", name(d.dtype), d.pixels, d.out, d.taps, d.channels);
}

std::string to_string(const ConvConfig& c) {
  constexpr std::string_view kNames[] = {"plain", "mma", "wgmma"};
  return fmt::format("{} {}x{}x{}, {} stages", kNames[static_cast<size_t>(c.kernel)], c.block_m,
                     c.block_n, c.block_k, c.stages);
}

}  // namespace braid::cuda
