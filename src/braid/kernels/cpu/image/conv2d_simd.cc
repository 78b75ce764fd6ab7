#include "braid/kernels/cpu/image/conv2d_detail.h"
#include "braid/kernels/cpu/simd/vec.h"

namespace braid::cpu::BRAID_ISA {
namespace {

using conv2d_detail::Args;
using conv2d_detail::kChannelBlock;
using conv2d_detail::kTiles;

constexpr int kPanel = 2 * kLanes;
// Two vectors of sums per pixel, two of weights, and a pixel fill the registers.
constexpr int kTile = kVectorRegisters == 32 ? 12 : 6;
static_assert(kPanel <= conv2d_detail::kMaxPanel && kTile <= conv2d_detail::kMaxTile);

// The source pixel of an output pixel under a tap; null outside the picture.
BRAID_INLINE const float* source(const Args& p, int64_t pixel, int64_t kt, int64_t ky, int64_t kx) {
  const int64_t column = pixel % p.out_width, line = pixel / p.out_width;
  const int64_t row = line % p.out_height, picture = line / p.out_height;
  const int64_t v = row * p.stride + ky - p.padding_above, u = column * p.stride + kx - p.padding;
  if (v < 0 || u < 0 || v >= p.height * p.upsample || u >= p.width * p.upsample) return nullptr;
  int64_t from = picture * p.frame_stride + kt - (p.kernel_frames - 1);
  const float* frames = p.x;
  if (from < 0 && p.before) {
    frames = p.before;
    from = p.before_frames - 1 - (-1 - from) / p.frame_upsample;
  } else {
    from = ((from < 0 ? 0 : from) + p.first_lacks) / p.frame_upsample;
  }
  return frames + ((from * p.height + v / p.upsample) * p.width + u / p.upsample) * p.channels;
}

// Gathers `count` pixels under a tap into tiles; the last tile is filled up with zeros.
void gather(const Args& p, int64_t first, int64_t count, int64_t tap, float* tiles) {
  const int64_t C = p.channels, whole = C / kChannelBlock * kChannelBlock;
  const int64_t blocks = (C + kChannelBlock - 1) / kChannelBlock;
  const int64_t kx = tap % p.kernel_width, line = tap / p.kernel_width;
  const int64_t ky = line % p.kernel_height, kt = line / p.kernel_height;
  const int64_t filled = (count + kTile - 1) / kTile * kTile;
  for (int64_t i = 0; i < filled; ++i) {
    const float* from = i < count ? source(p, first + i, kt, ky, kx) : nullptr;
    float* to = tiles + i / kTile * blocks * kTile * kChannelBlock + i % kTile * kChannelBlock;
    if (!from) {
      for (int64_t b = 0; b < blocks; ++b) {
        std::memset(to + b * kTile * kChannelBlock, 0, kChannelBlock * sizeof(float));
      }
      continue;
    }
    for (int64_t c = 0; c < whole; c += kChannelBlock, to += kTile * kChannelBlock) {
      for (int v = 0; v < kChannelBlock; v += kLanes) store(to + v, load(from + c + v));
    }
    for (int64_t c = whole; c < C; ++c) to[c - whole] = from[c];
  }
}

// sums [kTile][kPanel] (+)= a tile's pixels times a panel's weights, over C channels.
BRAID_INLINE void multiply(const float* w, const float* x, int64_t C, float* sums,
                           bool accumulate) {
  Vec sum[kTile][2];
#pragma GCC unroll 16
  for (int t = 0; t < kTile; ++t) {
    sum[t][0] = accumulate ? load(sums + t * kPanel) : Vec{};
    sum[t][1] = accumulate ? load(sums + t * kPanel + kLanes) : Vec{};
  }
  for (int64_t c0 = 0; c0 < C; c0 += kChannelBlock) {
    const int64_t count = C - c0 < kChannelBlock ? C - c0 : kChannelBlock;
    for (int64_t c = 0; c < count; ++c) {
      const Vec w0 = load(w), w1 = load(w + kLanes);
#pragma GCC unroll 16
      for (int t = 0; t < kTile; ++t) {
        const Vec xt = splat(x[t * kChannelBlock + c]);
        sum[t][0] = fma(w0, xt, sum[t][0]);
        sum[t][1] = fma(w1, xt, sum[t][1]);
      }
      w += kPanel;
    }
    x += kTile * kChannelBlock;
  }
#pragma GCC unroll 16
  for (int t = 0; t < kTile; ++t) {
    store(sums + t * kPanel, sum[t][0]);
    store(sums + t * kPanel + kLanes, sum[t][1]);
  }
}

// Writes a vector of an output pixel: the last steps in ops/conv2d.h.
BRAID_INLINE void finish(const Args& p, int64_t pixel, int64_t o, int lanes, Vec v) {
  const auto some = [lanes](const float* from) __attribute__((always_inline)) {
    return lanes == kLanes ? load(from) : load_n(from, lanes);
  };
  const int64_t at = pixel * p.outputs + o;
  if (p.bias) v = v + some(p.bias + o);
  if (p.silu) v = v / (splat(1.0f) + exp(-v));
  if (p.residual) v = v + some(p.residual + at);
  lanes == kLanes ? store(p.y + at, v) : store_n(p.y + at, v, lanes);
}

void run(const Args& p, int64_t begin, int64_t end) {
  const int64_t C = p.channels, O = p.outputs, count = end - begin;
  const int64_t panels = (O + kPanel - 1) / kPanel, tiles = (count + kTile - 1) / kTile;
  const int64_t tile_floats = (C + kChannelBlock - 1) / kChannelBlock * kTile * kChannelBlock;
  const int64_t taps = p.kernel_frames * p.kernel_height * p.kernel_width;
  for (int64_t tap = 0; tap < taps; ++tap) {
    gather(p, begin, count, tap, p.pixels);
    for (int64_t panel = 0; panel < panels; ++panel) {
      const float* w = p.weights + (panel * taps + tap) * C * kPanel;
      float* sums = p.sums + panel * kTiles * kTile * kPanel;
      for (int64_t t = 0; t < tiles; ++t) {
        multiply(w, p.pixels + t * tile_floats, C, sums + t * kTile * kPanel, tap > 0);
      }
    }
  }
  for (int64_t i = 0; i < count; ++i) {
    for (int64_t panel = 0; panel < panels; ++panel) {
      const float* sums = p.sums + (panel * kTiles * kTile + i) * kPanel;
      for (int64_t o = panel * kPanel; o < O && o < (panel + 1) * kPanel; o += kLanes) {
        const int lanes = O - o < kLanes ? static_cast<int>(O - o) : kLanes;
        finish(p, begin + i, o, lanes, load(sums + o - panel * kPanel));
      }
    }
  }
}

constexpr conv2d_detail::Kernels kKernels = {.panel = kPanel, .tile = kTile, .run = run};

}  // namespace

const conv2d_detail::Kernels& conv2d_kernels() {
  return kKernels;
}

}  // namespace braid::cpu::BRAID_ISA
