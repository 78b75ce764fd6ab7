// Convolutions on Hopper: a tile is a patch of 256 pixels by 64 or 128 channels. The copy engine
// brings the patch under a tap, 64 channels at a time, with zeros for pixels outside of the
// picture.
#include "braid/kernels/cuda/image/device/conv_hopper.h"

#include <algorithm>
#include <bit>

#include "braid/backend/cuda/tensor_map.h"
#include "braid/base/error.h"
#include "braid/base/math.h"
#include "braid/kernels/cuda/image/device/conv_args.cuh"
#include "braid/kernels/cuda/linear/device/cluster_launch.h"
#include "braid/kernels/cuda/ptx/cluster.h"
#include "braid/kernels/cuda/ptx/multicast.h"
#include "braid/kernels/cuda/ptx/tma.h"
#include "braid/kernels/cuda/ptx/wgmma.h"

namespace braid::cuda {
namespace {

using bf16 = __nv_bfloat16;
constexpr int kGroup = 128;           // threads of a warpgroup
constexpr int kThreads = 3 * kGroup;  // one brings operands, two multiply
constexpr int kM = 256, kK = 64, kStages = 4;
constexpr int kPair = 2;           // CTAs of a cluster
constexpr int kRowBytes = 2 * kK;  // in shared memory, swizzled
constexpr int kXBytes = kM * kRowBytes;
constexpr int kLogRun = 5, kRun = 1 << kLogRun;  // channels, of which a thread stores 8 neighbours

// With `wide`, rows of weights arrive in another order, so that a thread's sums are neighbours:
// column 8 j + 2 q + c of a run is channel 8 q + 2 j + c.
struct HopperArgs {
  CUtensorMap x, before;  // [pictures, H, W, C] in boxes of a patch, or half a patch if shared
  CUtensorMap w;          // [O, K], rows in five dimensions; boxes of all or half a tile's channels
  CUtensorMap residual;   // [pictures, Hout, Wout, O] in boxes of a patch
  ConvArgs conv;
  int pictures, tiles_y, tiles_x;  // patches of a picture whose pixels are `upsample` apart
  int log_width;                   // of a patch
  int parts_n, units;              // a unit is a pair of tiles
  bool shares_pixels, wide, reads_ahead;
};

template <int kN>
struct HopperSmem {
  static constexpr int kWBytes = kN * kRowBytes, kStage = kXBytes + kWBytes;
  static constexpr int kBytes = kStages * (kStage + 16) + 1024;  // begins at a multiple of 1024
  uint8_t ring[kStages][kStage];
  uint64_t full[kStages], empty[kStages];
};

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
struct Place {
  int stage = 0;
  uint32_t parity = 0;
  __device__ void next() {
    if (++stage == kStages) stage = 0, parity ^= 1;
  }
};

struct Tile {
  int picture, y, x;     // the first pixel, in steps of `upsample`
  int phase_y, phase_x;  // of all pixels within a step
  int channel;

  __device__ Tile(const HopperArgs& h, int unit, int rank, int block_n) {
    int p = unit / h.parts_n, n = unit - p * h.parts_n;
    h.shares_pixels ? n = kPair* n + rank : p = kPair * p + rank;
    const auto next = [&p](int count) {
      const int at = p % count;
      p /= count;
      return at;
    };
    phase_x = next(h.conv.upsample);
    phase_y = next(h.conv.upsample);
    x = next(h.tiles_x) << h.log_width;
    y = next(h.tiles_y) * (kM >> h.log_width);
    picture = p;
    channel = n * block_n;
  }

  // Of the output; a.pixels for a pixel outside.
  __device__ int64_t pixel(const HopperArgs& h, int row) const {
    const ConvArgs& a = h.conv;
    const int in_row = row & ((1 << h.log_width) - 1);
    const int to_y = (y + (row >> h.log_width)) * a.upsample + phase_y;
    const int to_x = (x + in_row) * a.upsample + phase_x;
    if (picture >= h.pictures || to_y >= a.out_height || to_x >= a.out_width) return a.pixels;
    return (int64_t{picture} * a.out_height + to_y) * a.out_width + to_x;
  }
};

// A pixel of x along an axis, which upsampling repeats.
struct Source {
  int at, phase;
  // `tap` may be negative: pixels of the upsampled picture behind the first of pixel `first`.
  __device__ Source(int first, int tap, int upsample) {
    const int behind = tap >= 0 ? tap / upsample : -((upsample - 1 - tap) / upsample);
    at = first + behind;
    phase = tap - behind * upsample;
  }
  __device__ void next(int upsample) {
    if (++phase == upsample) phase = 0, ++at;
  }
};

// A single thread. Both CTAs of a pair walk the same steps, and each brings half of what they
// share.
template <int kN>
__device__ inline void produce(const HopperArgs& h, HopperSmem<kN>& s, int rank) {
  using Smem = HopperSmem<kN>;
  const ConvArgs& a = h.conv;
  constexpr uint16_t kBoth = (1 << kPair) - 1;
  const int up = a.upsample;
  const int first_y = h.shares_pixels ? rank * (kM >> h.log_width) / kPair : 0;
  const int first_row = h.shares_pixels ? 0 : rank * (kN / kPair);
  const int own_x = h.shares_pixels ? rank * (kXBytes / kPair) : 0;
  const int own_w = kXBytes + first_row * kRowBytes;
  Place place;
  int used = 0;
  for (int unit = static_cast<int>(blockIdx.x) / kPair; unit < h.units;
       unit += static_cast<int>(gridDim.x) / kPair) {
    const Tile tile(h, unit, rank, kN);
    const Source top(tile.y + first_y, tile.phase_y - a.padding_above, up);
    const Source left(tile.x, tile.phase_x - a.padding, up);
    const int row = (tile.channel + first_row) >> (h.wide ? kLogRun : 0);
    for (int c = 0; c < kN && h.reads_ahead; c += kK) {
      ptx::tma_prefetch_4d(&h.residual, tile.channel + c, tile.x, tile.y, tile.picture);
    }
    for (int c = 0; c < a.channels; c += kK) {
      int k = c;
      for (int frame = 0; frame < a.kernel_frames; ++frame) {
        const auto [before, picture] = source_frame(a, tile.picture, frame);
        const CUtensorMap* pictures = before ? &h.before : &h.x;
        Source y = top;
        for (int ky = 0; ky < a.kernel_height; ++ky, y.next(up)) {
          Source x = left;
          for (int kx = 0; kx < a.kernel_width; ++kx, x.next(up)) {
            if (used >= kStages) ptx::mbarrier_wait(&s.empty[place.stage], place.parity ^ 1);
            ++used;
            uint8_t* const to = s.ring[place.stage];
            uint64_t* const full = &s.full[place.stage];
            ptx::mbarrier_arrive_expect(full, Smem::kStage);
            if (h.shares_pixels) {
              ptx::tma_multicast_4d(to + own_x, pictures, full, c, x.at, y.at, picture, kBoth);
              ptx::tma_load_5d(to + own_w, &h.w, full, k, 0, 0, 0, row);
            } else {
              ptx::tma_load_4d(to + own_x, pictures, full, c, x.at, y.at, picture);
              ptx::tma_multicast_5d(to + own_w, &h.w, full, k, 0, 0, 0, row, kBoth);
            }
            k += a.channels;
            place.next();
          }
        }
      }
    }
  }
}

// A warpgroup multiplies 128 of a tile's pixels.
template <int kN>
__device__ inline void consume(const HopperArgs& h, HopperSmem<kN>& s, int rank, int group) {
  using Product = ptx::Wgmma<bf16, kN>;
  constexpr uint32_t kStep = 16 * sizeof(bf16) / 16;  // a descriptor's step for a k of 16
  constexpr uint32_t kHalf = 64 * kRowBytes / 16;     // 64 pixels
  constexpr int kRuns = kN / kRun;
  const ConvArgs& a = h.conv;
  const int steps = a.k / kK;
  const bool adds = h.wide && a.residual != nullptr;
  const int lane = static_cast<int>(threadIdx.x) % 32,
            warp = static_cast<int>(threadIdx.x) / 32 % 4, quad = lane % 4;
  const uint32_t ring = ptx::wgmma_descriptor(s.ring[0], 0);
  const auto release = [&](int stage) {  // in both CTAs
    if (lane < kPair) ptx::mbarrier_arrive_cluster(&s.empty[stage], lane);
  };
  Place place;
  for (int unit = static_cast<int>(blockIdx.x) / kPair; unit < h.units;
       unit += static_cast<int>(gridDim.x) / kPair) {
    float acc[2][kN / 2];
    int last = 0;
    for (int step = 0; step < steps; ++step) {
      ptx::mbarrier_wait(&s.full[place.stage], place.parity);
      const uint32_t stage = ring + place.stage * (HopperSmem<kN>::kStage / 16);
      const uint32_t x = stage + group * (2 * kHalf), w = stage + kXBytes / 16;
      ptx::wgmma_fence();
#pragma unroll
      for (int k = 0; k < kK / 16; ++k) {
        Product::ss(acc[0], x + k * kStep, w + k * kStep, step > 0 || k > 0);
        Product::ss(acc[1], x + kHalf + k * kStep, w + k * kStep, step > 0 || k > 0);
      }
      ptx::wgmma_commit();
      ptx::wgmma_wait<1>();  // the stage before is free
      if (step > 0) release(last);
      last = place.stage;
      place.next();
    }
    // Four rows of a thread: two in each half.
    const Tile tile(h, unit, rank, kN);
    int64_t pixel[4];
    Packed<bf16, 8> residual[4][kRuns];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      pixel[i] = tile.pixel(h, group * 128 + i / 2 * 64 + 16 * warp + i % 2 * 8 + lane / 4);
      if (!adds || pixel[i] >= a.pixels) continue;
#pragma unroll
      for (int r = 0; r < kRuns; ++r) {
        const int o = tile.channel + r * kRun + 8 * quad;
        if (o >= a.out) continue;
        residual[i][r] =
            load_packed<bf16, 8>(static_cast<const bf16*>(a.residual) + pixel[i] * a.out + o);
      }
    }
    ptx::wgmma_wait<0>();
    ptx::wgmma_pin(acc[0]);
    ptx::wgmma_pin(acc[1]);
    release(last);
    if (h.wide) {
#pragma unroll
      for (int r = 0; r < kRuns; ++r) {
        const int o = tile.channel + r * kRun + 8 * quad;
        if (o >= a.out) continue;
        float bias[8] = {};
        if (a.bias) load_constant(a.bias, a.bias_dtype, o, bias);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          if (pixel[i] >= a.pixels) continue;
          float y[8];
#pragma unroll
          for (int e = 0; e < 8; ++e) {
            y[e] = acc[i / 2][4 * (r * (kRun / 8) + e / 2) + i % 2 * 2 + e % 2] + bias[e];
          }
          if (a.silu) {
#pragma unroll
            for (int e = 0; e < 8; ++e) y[e] = activate(false, y[e]);
          }
          if (adds) {
            float add[8];
            widen(residual[i][r], add);
#pragma unroll
            for (int e = 0; e < 8; ++e) y[e] += add[e];
          }
          store(static_cast<bf16*>(a.y) + pixel[i] * a.out + o, y);
        }
      }
    } else {
#pragma unroll
      for (int j = 0; j < kN / 8; ++j) {
        const ConvColumns columns(a, tile.channel + 8 * j + 2 * quad);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int at = 4 * j + i % 2 * 2;
          columns.store(a, pixel[i], acc[i / 2][at], acc[i / 2][at + 1]);
        }
      }
    }
  }
}
#endif

template <int kN>
__global__ void __launch_bounds__(kThreads, 1) hopper_kernel(const __grid_constant__ HopperArgs h) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  extern __shared__ uint8_t raw[];
  auto& s = *reinterpret_cast<HopperSmem<kN>*>(raw + (-ptx::smem_address(raw) & 1023));
  const int group = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / kGroup, 0);
  const int rank = static_cast<int>(ptx::cluster_rank());
  ptx::grid_launch_dependents();
  if (threadIdx.x == 0) {
    ptx::prefetch_tensor_map(&h.x);
    ptx::prefetch_tensor_map(&h.w);
    for (int i = 0; i < kStages; ++i) {
      ptx::mbarrier_init(&s.full[i], 1);
      ptx::mbarrier_init(&s.empty[i], kPair * 2 * kGroup / 32);
    }
    ptx::fence_barrier_init();
  }
  ptx::cluster_sync();
  ptx::grid_dependency_wait();
  if (group == 0) {
    ptx::set_max_registers_down<40>();
    if (threadIdx.x == 0) produce(h, s, rank);
  } else {
    ptx::set_max_registers_up<232>();
    consume(h, s, rank, group - 1);
  }
  __syncwarp();
  ptx::cluster_sync();  // no CTA leaves while the other may still signal or copy there
#endif
}

// Pictures in boxes of `rows` by `columns` pixels with 64 channels.
CUtensorMap pictures_map(const void* data, int64_t pictures, int64_t height, int64_t width,
                         int64_t channels, int rows, int columns) {
  const int64_t row = 2 * width * channels;
  const MapDim dims[] = {{channels, 0, kK},
                         {width, 2 * channels, columns},
                         {height, row, rows},
                         {pictures, height * row, 1}};
  return make_tensor_map(CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, CU_TENSOR_MAP_SWIZZLE_128B, kMapWide,
                         data, dims, "a convolution's pictures");
}

// Weights in boxes of `rows` rows.
CUtensorMap weights_map(const ConvArgs& a, bool wide, int rows) {
  const int64_t row = 2 * int64_t{a.k};
  const MapDim in_order[] = {{a.k, 0, kK}, {1, row}, {1, row}, {1, row}, {a.out, row, rows}};
  const MapDim by_runs[] = {{a.k, 0, kK},
                            {2, row, 2},
                            {4, 8 * row, 4},
                            {4, 2 * row, 4},
                            {a.out / kRun, kRun * row, rows / kRun}};
  return make_tensor_map(CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, CU_TENSOR_MAP_SWIZZLE_128B, kMapWide,
                         a.w, wide ? by_runs : in_order, "a convolution's weights");
}

template <int kN>
void launch(HopperArgs& h, int clusters, const LaunchContext& context) {
  launch_clusters(context, hopper_kernel<kN>, clusters, kPair, kThreads, HopperSmem<kN>::kBytes, h);
}

}  // namespace

void load_conv_hopper(int block_n) {
  block_n == 64 ? allow_shared_memory(hopper_kernel<64>, HopperSmem<64>::kBytes)
                : allow_shared_memory(hopper_kernel<128>, HopperSmem<128>::kBytes);
}

void conv_hopper(const ConvArgs& args, int num_sms, const ConvConfig& c,
                 const LaunchContext& context) {
  const int columns = c.patch_width;
  const bool known = c.block_m == kM && (c.block_n == 64 || c.block_n == 128) && c.block_k == kK &&
                     c.stages == kStages && columns >= 1 && columns <= kM / kPair &&
                     std::has_single_bit(static_cast<unsigned>(columns));
  if (!known || args.stride != 1) {
    fail(ErrorCode::kUnsupported, "convolution: no kernel for {}", to_string(c));
  }
  const auto aligned = [](const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; };
  const int rows = kM / columns, own_rows = c.shares_pixels ? rows / kPair : rows;
  HopperArgs h{.conv = args};
  h.shares_pixels = c.shares_pixels;
  h.wide = args.out % kRun == 0 && aligned(args.bias) && aligned(args.residual) && aligned(args.y);
  h.reads_ahead = h.wide && args.residual != nullptr && args.upsample == 1;
  h.pictures = static_cast<int>(args.pixels / (int64_t{args.out_height} * args.out_width));
  h.x = h.before =
      pictures_map(args.x, args.frames, args.height, args.width, args.channels, own_rows, columns);
  if (args.before) {
    h.before = pictures_map(args.before, args.before_frames, args.height, args.width, args.channels,
                            own_rows, columns);
  }
  h.w = weights_map(args, h.wide, c.shares_pixels ? c.block_n : c.block_n / kPair);
  if (h.reads_ahead) {
    h.residual = pictures_map(args.residual, h.pictures, args.out_height, args.out_width, args.out,
                              rows, columns);
  }
  h.log_width = std::countr_zero(static_cast<unsigned>(columns));
  const auto patches = [&](int pixels, int size) {
    return static_cast<int>(ceil_div(ceil_div(pixels, args.upsample), size));
  };
  h.tiles_y = patches(args.out_height, rows);
  h.tiles_x = patches(args.out_width, columns);
  int tiles = h.pictures * h.tiles_y * h.tiles_x * args.upsample * args.upsample;
  h.parts_n = static_cast<int>(ceil_div(args.out, c.block_n));
  int& shared = c.shares_pixels ? h.parts_n : tiles;
  shared = static_cast<int>(ceil_div(shared, kPair));
  h.units = tiles * h.parts_n;
  const int clusters = std::clamp(num_sms / kPair, 1, h.units);
  c.block_n == 64 ? launch<64>(h, clusters, context) : launch<128>(h, clusters, context);
}

}  // namespace braid::cuda
