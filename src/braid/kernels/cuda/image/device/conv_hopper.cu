// Convolutions on Hopper: tiles of 256 pixels by 128 channels. A warpgroup gathers the pixels under
// a tap, 64 channels at a time, while the copy engine brings weights; two warpgroups multiply.
#include "braid/kernels/cuda/image/device/conv_hopper.h"

#include <algorithm>

#include "braid/backend/cuda/tensor_map.h"
#include "braid/base/error.h"
#include "braid/base/math.h"
#include "braid/kernels/cuda/image/device/conv_args.cuh"
#include "braid/kernels/cuda/ptx/cached_copy.h"
#include "braid/kernels/cuda/ptx/tma.h"
#include "braid/kernels/cuda/ptx/wgmma.h"

namespace braid::cuda {
namespace {

using bf16 = __nv_bfloat16;
constexpr int kGroup = 128;  // threads of a warpgroup
constexpr int kThreads = 3 * kGroup;
constexpr int kM = 256, kN = 128, kK = 64, kStages = 4;
constexpr int kRowBytes = 2 * kK;  // in shared memory, swizzled
constexpr int kXBytes = kM * kRowBytes, kWBytes = kN * kRowBytes;
constexpr int kStage = kXBytes + kWBytes;

struct HopperArgs {
  CUtensorMap w;  // [K / 64, O, 64] in boxes of 128 rows
  ConvArgs conv;
  int tiles, tiles_n;
};

struct HopperSmem {
  uint8_t ring[kStages][kStage];
  uint64_t full[kStages], empty[kStages];
};
constexpr int kSmemBytes = sizeof(HopperSmem) + 1024;  // the ring begins at a multiple of 1024

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
struct Place {
  int stage = 0;
  uint32_t parity = 0;
  __device__ void next() {
    if (++stage == kStages) stage = 0, parity ^= 1;
  }
};

// Eight threads share a pixel, 16 bytes each: pixels thread / 8 + 16 i. A row's taps follow each
// other, so the first-level cache has two of three neighbours.
template <bool kFrames>
__device__ inline void produce(const HopperArgs& h, HopperSmem& s) {
  constexpr int kBehind = 2;  // stages from asking for pixels to their arrival
  constexpr int kRows = kM / (kGroup / 8);
  const ConvArgs& a = h.conv;
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32;
  const int chunk = thread % 8, row0 = thread / 8;
  const int blocks = a.channels / kK;
  const auto* x = static_cast<const bf16*>(a.x);
  Place place, behind;
  int flying = 0, used = 0;
  const auto arrive = [&] {  // the oldest pixels under way have come
    ptx::fence_proxy_async();
    __syncwarp();
    if (lane == 0) ptx::mbarrier_arrive(&s.full[behind.stage]);
    behind.next();
    --flying;
  };
  for (int t = static_cast<int>(blockIdx.x); t < h.tiles; t += static_cast<int>(gridDim.x)) {
    const int channel = t % h.tiles_n * kN;
    ConvWindow windows[kRows];
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      windows[i] = window_of(a, int64_t{t / h.tiles_n} * kM + row0 + 16 * i);
    }
    const int lines = a.kernel_frames * a.kernel_height;
    for (int line = 0; line < lines; ++line) {
      ConvTap tap;
      tap.frame = line / a.kernel_height;
      tap.y = line - tap.frame * a.kernel_height;
      for (int block = 0; block < blocks; ++block) {
        for (tap.x = 0; tap.x < a.kernel_width; ++tap.x) {
          if (used >= kStages) ptx::mbarrier_wait(&s.empty[place.stage], place.parity ^ 1);
          ++used;
          uint8_t* const to = s.ring[place.stage];
          if (thread == 0) {
            uint64_t* const full = &s.full[place.stage];
            ptx::mbarrier_arrive_expect(full, kWBytes);
            ptx::tma_load_3d(to + kXBytes, &h.w, full, 0, channel,
                             (line * a.kernel_width + tap.x) * blocks + block);
          }
#pragma unroll
          for (int i = 0; i < kRows; ++i) {
            const int row = row0 + 16 * i;
            const bf16* from = source<kFrames, bf16>(a, windows[i], tap);
            ptx::cp_async_16_cached(to + row * kRowBytes + (chunk ^ row0 % 8) * 16,
                                    from ? from + block * kK + chunk * 8 : x, from != nullptr);
          }
          ptx::cp_async_commit();
          if (++flying > kBehind) {
            ptx::cp_async_wait<kBehind>();
            arrive();
          }
          place.next();
        }
      }
    }
  }
  ptx::cp_async_wait<0>();
  while (flying > 0) arrive();
}

// A warpgroup multiplies 128 of a tile's pixels.
__device__ inline void consume(const HopperArgs& h, HopperSmem& s, int group) {
  using Product = ptx::Wgmma<bf16, kN>;
  constexpr uint32_t kStep = 16 * sizeof(bf16) / 16;  // a descriptor's step for a k of 16
  constexpr uint32_t kHalf = 64 * kRowBytes / 16;     // 64 pixels
  const ConvArgs& a = h.conv;
  const int steps = a.k / kK;
  const int lane = static_cast<int>(threadIdx.x) % 32,
            warp = static_cast<int>(threadIdx.x) / 32 % 4;
  const uint32_t ring = ptx::wgmma_descriptor(s.ring[0], 0);
  Place place;
  for (int t = static_cast<int>(blockIdx.x); t < h.tiles; t += static_cast<int>(gridDim.x)) {
    float acc[2][kN / 2];
    int last = 0;
    for (int step = 0; step < steps; ++step) {
      ptx::mbarrier_wait(&s.full[place.stage], place.parity);
      const uint32_t stage = ring + place.stage * (kStage / 16);
      const uint32_t x = stage + group * (2 * kHalf), w = stage + kXBytes / 16;
      ptx::wgmma_fence();
#pragma unroll
      for (int k = 0; k < kK / 16; ++k) {
        Product::ss(acc[0], x + k * kStep, w + k * kStep, step > 0 || k > 0);
        Product::ss(acc[1], x + kHalf + k * kStep, w + k * kStep, step > 0 || k > 0);
      }
      ptx::wgmma_commit();
      ptx::wgmma_wait<1>();  // the stage before is free
      if (lane == 0 && step > 0) ptx::mbarrier_arrive(&s.empty[last]);
      last = place.stage;
      place.next();
    }
    ptx::wgmma_wait<0>();
    ptx::wgmma_pin(acc[0]);
    ptx::wgmma_pin(acc[1]);
    if (lane == 0) ptx::mbarrier_arrive(&s.empty[last]);
    const int64_t pixel = int64_t{t / h.tiles_n} * kM + group * 128 + 16 * warp + lane / 4;
#pragma unroll
    for (int j = 0; j < kN / 8; ++j) {
      const ConvColumns columns(a, t % h.tiles_n * kN + 8 * j + 2 * (lane % 4));
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int at = 4 * j + i % 2 * 2;
        columns.store(a, pixel + i / 2 * 64 + i % 2 * 8, acc[i / 2][at], acc[i / 2][at + 1]);
      }
    }
  }
}
#endif

template <bool kFrames>
__global__ void __launch_bounds__(kThreads, 1) hopper_kernel(const __grid_constant__ HopperArgs h) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  extern __shared__ uint8_t raw[];
  auto& s = *reinterpret_cast<HopperSmem*>(raw + (-ptx::smem_address(raw) & 1023));
  const int group = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / kGroup, 0);
  ptx::grid_launch_dependents();
  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages; ++i) {
      ptx::mbarrier_init(&s.full[i], 1 + kGroup / 32);
      ptx::mbarrier_init(&s.empty[i], 2 * kGroup / 32);
    }
    ptx::fence_barrier_init();
  }
  __syncthreads();
  ptx::grid_dependency_wait();
  group == 0 ? produce<kFrames>(h, s) : consume(h, s, group - 1);
#endif
}

}  // namespace

void load_conv_hopper(bool frames) {
  allow_shared_memory(frames ? hopper_kernel<true> : hopper_kernel<false>, kSmemBytes);
}

void conv_hopper(const ConvArgs& args, int num_sms, const ConvConfig& config,
                 const LaunchContext& context) {
  if (config != ConvConfig{ConvKernel::wgmma, kM, kN, kK, kStages}) {
    fail(ErrorCode::kUnsupported, "convolution: no kernel for {}", to_string(config));
  }
  const MapDim dims[] = {
      {kK, 0, kK}, {args.out, 2 * int64_t{args.k}, kN}, {args.k / kK, kRowBytes, 1}};
  HopperArgs h{.w = make_tensor_map(CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, CU_TENSOR_MAP_SWIZZLE_128B,
                                    kMapWide, args.w, dims, "a convolution's weights"),
               .conv = args};
  h.tiles_n = static_cast<int>(ceil_div(int64_t{args.out}, int64_t{kN}));
  h.tiles = static_cast<int>(ceil_div(args.pixels, int64_t{kM})) * h.tiles_n;
  launch_kernel(context, args.kernel_frames > 1 ? hopper_kernel<true> : hopper_kernel<false>,
                dim3(static_cast<unsigned>(std::min(h.tiles, num_sms))), dim3(kThreads), kSmemBytes,
                h);
}

}  // namespace braid::cuda
