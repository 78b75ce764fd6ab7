#include "braid/kernels/cpu/image/conv2d.h"

#include <algorithm>
#include <vector>

#include "braid/base/error.h"
#include "braid/kernels/cpu/dispatch.h"
#include "braid/kernels/cpu/image/conv2d_detail.h"
#include "braid/tensor/quant.h"

namespace braid::cpu {

BRAID_DECLARE_PER_ISA(const conv2d_detail::Kernels& conv2d_kernels())

namespace {

using namespace conv2d_detail;

constexpr int64_t kPackedChannels = 64;  // channels per packing unit, to keep the target in cache

int64_t weight_floats(const Shape& w) {
  return round_up(w[0], kMaxPanel) * (w.elems() / w[0]);
}
int64_t pixel_floats(const Shape& w) {
  return kTiles * kMaxTile * round_up(w[1], kChannelBlock);
}
int64_t sum_floats(const Shape& w) {
  return kTiles * kMaxTile * round_up(w[0], kMaxPanel);
}

// Puts channels [begin, end) of a panel's outputs behind each other; outputs beyond the last are 0.
void pack(const TensorView& w, int64_t panel, int64_t index, int64_t begin, int64_t end,
          float* weights) {
  const int64_t O = w.shape[0], C = w.shape[1], taps = w.shape.elems() / (O * C);
  float* to = weights + (index * taps * C * panel);
  std::vector<float> row((end - begin) * taps);
  for (int64_t lane = 0; lane < panel; ++lane) {
    const int64_t o = (index * panel) + lane;
    if (o < O) {
      const auto at = bytes_of(w.dtype, ((o * C) + begin) * taps);
      dequantize_row(w.dtype, w.data + at, row.data(), std::ssize(row));
    } else {
      std::ranges::fill(row, 0.0f);
    }
    const float* from = row.data();
    for (int64_t c = begin; c < end; ++c) {
      for (int64_t tap = 0; tap < taps; ++tap) to[(((tap * C) + c) * panel) + lane] = *from++;
    }
  }
}

}  // namespace

int64_t conv2d_scratch_bytes(const Shape& w, int threads) {
  return (weight_floats(w) + threads * (pixel_floats(w) + sum_floats(w))) *
         static_cast<int64_t>(sizeof(float));
}

void conv2d(const Conv2dParams& p, std::byte* scratch, const Team& team, Isa isa) {
  const Shape& w = p.w.shape;
  BRAID_CHECK(
      (w.rank() == 4 || w.rank() == 5) && is_float(p.w.dtype) && p.stride > 0 && p.upsample > 0,
      "{} {}", name(p.w.dtype), to_string(w));
  const Kernels& k = pick_isa(isa, BRAID_EACH_ISA(conv2d_kernels))();
  auto* weights = reinterpret_cast<float*>(scratch);
  const int64_t blocks = ceil_div(w[1], kPackedChannels);
  const Range units = team.share(ceil_div(w[0], k.panel) * blocks);
  for (int64_t unit = units.begin; unit < units.end; ++unit) {
    const int64_t begin = unit % blocks * kPackedChannels;
    pack(p.w, k.panel, unit / blocks, begin, std::min(w[1], begin + kPackedChannels), weights);
  }
  team.barrier();

  float* own = weights + weight_floats(w) + (team.index * (pixel_floats(w) + sum_floats(w)));
  const Args args{.x = p.x,
                  .before = p.before,
                  .bias = p.bias,
                  .residual = p.residual,
                  .y = p.y,
                  .height = p.height,
                  .width = p.width,
                  .out_height = p.out_height,
                  .out_width = p.out_width,
                  .stride = p.stride,
                  .padding = p.padding,
                  .padding_above = p.padding_above,
                  .upsample = p.upsample,
                  .channels = w[1],
                  .outputs = w[0],
                  .kernel_frames = w.rank() == 5 ? w[2] : 1,
                  .kernel_height = w[-2],
                  .kernel_width = w[-1],
                  .before_frames = p.before_frames,
                  .frame_stride = p.frame_stride,
                  .frame_upsample = p.frame_upsample,
                  .first_lacks = p.first_lacks,
                  .silu = p.silu,
                  .weights = weights,
                  .pixels = own,
                  .sums = own + pixel_floats(w)};
  const int64_t pixels = p.batch * p.out_height * p.out_width;
  const int64_t group = kTiles * k.tile;
  const Range groups = team.share(ceil_div(pixels, group));
  for (int64_t i = groups.begin; i < groups.end; ++i) {
    k.run(args, i * group, std::min(pixels, (i + 1) * group));
  }
}

}  // namespace braid::cpu
