#include "braid/kernels/cuda/image/conv_config.h"

#include <algorithm>

#include "braid/base/error.h"
#include "braid/base/math.h"

namespace braid::cuda {

ConvDesc conv_desc(const ops::Conv2dAttrs& a, const ValueType& x, const ValueType& w) {
  const int64_t height = a.out_height(w.shape[-2]), width = a.out_width(w.shape[-1]);
  return {.dtype = x.dtype,
          .pixels = a.batch * height * width,
          .inputs = x.shape[0],
          .channels = x.shape[1],
          .out = w.shape[0],
          .taps = w.shape.elems() / (w.shape[0] * w.shape[1]),
          .height = height,
          .width = width,
          .stride = a.stride,
          .upsample = a.upsample};
}

ops::Conv2dAttrs frames_as_pictures(const ops::Conv3dAttrs& a, const Shape& x) {
  return {.batch = a.out_frames(x[0] / (a.height * a.width)),
          .height = a.height,
          .width = a.width,
          .stride = a.stride,
          .padding = a.padding,
          .upsample = a.upsample,
          .first_row = a.first_row,
          .rows = a.rows,
          .silu = a.silu};
}

namespace {

// Patches of a picture whose pixels are `upsample` apart.
int64_t patches_of(const ConvDesc& d, int pixels, int width) {
  return ceil_div(ceil_div(d.width, d.upsample), int64_t{width}) *
         ceil_div(ceil_div(d.height, d.upsample), int64_t{pixels / width});
}

// Of a patch of `pixels`: fewest patches over a picture, then the shape nearest to a square. A
// patch has every `upsample`-th pixel along both axes.
int patch_width(const ConvDesc& d, int pixels) {
  int best = 16;
  int64_t fewest = patches_of(d, pixels, best);
  for (const int width : {32, 8, 64, 128}) {
    const int64_t patches = patches_of(d, pixels, width);
    if (patches < fewest) best = width, fewest = patches;
  }
  return best;
}

}  // namespace

ConvConfig choose(const ConvDesc& d, const ConvDevice& device) {
  constexpr int64_t kMost = int64_t{1} << 31;
  const bool known = d.dtype == DType::f32 || d.dtype == DType::bf16;
  const bool counted = std::max({d.pixels, d.inputs, d.taps * d.channels}) < kMost;
  if (!known || !counted || ceil_div(d.out, 64) > 65535) {
    fail(ErrorCode::kUnsupported, "convolution: no kernel for {}", to_string(d));
  }
  constexpr int kBlockK = 64;
  if (d.dtype != DType::bf16 || d.channels % kBlockK != 0) return {};
  if (device.compute_capability != 90 || d.stride != 1) {
    return {
        .kernel = ConvKernel::mma, .block_m = 128, .block_n = 128, .block_k = kBlockK, .stages = 3};
  }
  ConvConfig c{.kernel = ConvKernel::wgmma,
               .block_m = 256,
               .block_n = d.out <= 64 ? 64 : 128,
               .block_k = kBlockK,
               .stages = 4};
  c.patch_width = patch_width(d, c.block_m);
  // A CTA has a tile at a time: of a rank's few pixels, tiles half as wide fill the device.
  const int64_t pictures = d.pixels / (d.height * d.width);
  const int64_t patches =
      pictures * d.upsample * d.upsample * patches_of(d, c.block_m, c.patch_width);
  if (patches * ceil_div(d.out, int64_t{64}) <= device.num_sms) c.block_n = 64;
  c.shares_pixels = ceil_div(d.out, int64_t{c.block_n}) % 2 == 0;
  return c;
}

std::string to_string(const ConvDesc& d) {
  return fmt::format("{} {} x {}, {} x {}", name(d.dtype), d.pixels, d.out, d.taps, d.channels);
}

std::string to_string(const ConvConfig& c) {
  constexpr std::string_view kNames[] = {"plain", "mma", "wgmma"};
  std::string text = fmt::format("{} {}x{}x{}, {} stages", kNames[static_cast<size_t>(c.kernel)],
                                 c.block_m, c.block_n, c.block_k, c.stages);
  if (c.patch_width > 0) {
    text += fmt::format(", patches {} wide, {} shared", c.patch_width,
                        c.shares_pixels ? "pixels" : "channels");
  }
  return text;
}

}  // namespace braid::cuda
