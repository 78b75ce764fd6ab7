#include "braid/kernels/cuda/image/device/conv2d.h"

#include "braid/base/error.h"
#include "braid/base/math.h"
#include "braid/kernels/cuda/image/device/conv_args.cuh"
#include "braid/kernels/cuda/image/device/conv_hopper.h"

namespace braid::cuda {
namespace {

using Args = ConvArgs;

constexpr int kThreads = 256;

// 64 pixels by 64 channels; each thread has 4 by 4 outputs.
template <class T>
__global__ void __launch_bounds__(kThreads) plain_kernel(const __grid_constant__ Args a) {
  constexpr int kBlock = 64, kK = 16, kEach = 4;
  __shared__ float xs[kK][kBlock + 4], ws[kK][kBlock + 4];
  ptx::grid_launch_dependents();
  ptx::grid_dependency_wait();
  const int64_t pixel = static_cast<int64_t>(blockIdx.x) * kBlock;
  const int channel = blockIdx.y * kBlock;
  const int tx = threadIdx.x % 16, ty = threadIdx.x / 16;
  const auto* w = static_cast<const T*>(a.w);
  const int load_k = threadIdx.x % kK, load_row = threadIdx.x / kK;
  ConvWindow windows[kBlock / 16];
#pragma unroll
  for (int i = 0; i < kBlock / 16; ++i) windows[i] = window_of(a, pixel + load_row + i * 16);
  float sum[kEach][kEach] = {};
  for (int k0 = 0; k0 < a.k; k0 += kK) {
    const int k = k0 + load_k, tap = k / a.channels, c = k - tap * a.channels;
    const int line = tap / a.kernel_width, frame = line / a.kernel_height;
    const ConvTap at_tap = {frame, line - frame * a.kernel_height, tap - line * a.kernel_width};
#pragma unroll
    for (int i = 0; i < kBlock / 16; ++i) {
      const int at = load_row + i * 16;
      const T* x = k < a.k ? source<true, T>(a, windows[i], at_tap) : nullptr;
      xs[load_k][at] = x ? widen(x[c]) : 0;
      const int o = channel + at;
      ws[load_k][at] = k < a.k && o < a.out ? widen(w[int64_t{o} * a.k + k]) : 0;
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kK; ++i) {
      float p[kEach], q[kEach];
#pragma unroll
      for (int j = 0; j < kEach; ++j) p[j] = xs[i][ty * kEach + j], q[j] = ws[i][tx * kEach + j];
#pragma unroll
      for (int j = 0; j < kEach; ++j) {
#pragma unroll
        for (int l = 0; l < kEach; ++l) sum[j][l] += p[j] * q[l];
      }
    }
    __syncthreads();
  }
#pragma unroll
  for (int j = 0; j < kEach; ++j) {
    const int64_t m = pixel + ty * kEach + j;
    if (m >= a.pixels) break;
#pragma unroll
    for (int l = 0; l < kEach; ++l) {
      const int o = channel + tx * kEach + l;
      if (o >= a.out) break;
      float y = finish(a, sum[j][l] + bias_of(a, o));
      if (a.residual) y += widen(static_cast<const T*>(a.residual)[m * a.out + o]);
      static_cast<T*>(a.y)[m * a.out + o] = narrow<T>(y);
    }
  }
}

// Tiles with kM pixels by kN channels; a tap's kK channels at a time pass through kStages in shared
// memory. Eight warps in two rows of four, each with 64 pixels by 32 channels. A stage's rows are
// 16 bytes longer than kK, so ldmatrix meets no bank twice.
constexpr int kM = 128, kN = 128, kK = 64, kStages = 3;
constexpr int kPitch = kK + 8;
constexpr int kStageElems = (kM + kN) * kPitch;
constexpr size_t kMmaBytes = size_t{kStages} * kStageElems * 2;

template <bool kFrames>
__global__ void __launch_bounds__(kThreads, 2) mma_kernel(const __grid_constant__ Args a) {
  using bf16 = __nv_bfloat16;
  extern __shared__ __align__(16) unsigned char smem[];
  auto* stages = reinterpret_cast<bf16*>(smem);
  ptx::grid_launch_dependents();
  const int64_t pixel = static_cast<int64_t>(blockIdx.x) * kM;
  const int channel = blockIdx.y * kN;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int warp_m = warp / 4 * 64, warp_n = warp % 4 * 32;
  const auto* x = static_cast<const bf16*>(a.x);
  const auto* w = static_cast<const bf16*>(a.w);

  // A thread copies 16 bytes from four rows of pixels, and from four rows of weights.
  constexpr int kRows = kM / (kThreads / 8);
  const int chunk = threadIdx.x % 8 * 8, load_row = threadIdx.x / 8;
  ConvWindow windows[kRows];
#pragma unroll
  for (int i = 0; i < kRows; ++i) windows[i] = window_of(a, pixel + load_row + i * 32);
  const int blocks_per_tap = a.channels / kK, blocks = a.k / kK;
  ConvTap tap;  // of the next copy
  int load_block = 0, in_tap = 0;

  ptx::grid_dependency_wait();
  const auto load = [&] {
    if (load_block < blocks) {
      bf16* to = stages + load_block % kStages * kStageElems;
      const int c = in_tap * kK + chunk;
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
        const int at = load_row + i * 32;
        const bf16* from = source<kFrames, bf16>(a, windows[i], tap);
        ptx::cp_async_16(to + at * kPitch + chunk, from ? from + c : x, from != nullptr);
        const int o = channel + at;
        ptx::cp_async_16(to + (kM + at) * kPitch + chunk,
                         w + (o < a.out ? int64_t{o} * a.k + load_block * kK + chunk : 0),
                         o < a.out);
      }
      ++load_block;
      if (++in_tap == blocks_per_tap) {
        in_tap = 0;
        if (++tap.x == a.kernel_width) tap.x = 0, ++tap.y;
        if (kFrames && tap.y == a.kernel_height) tap.y = 0, ++tap.frame;
      }
    }
    ptx::cp_async_commit();
  };

  float sum[4][4][4] = {};  // [16 pixels, 8 channels, fragment]
  for (int i = 0; i < kStages - 1; ++i) load();
  for (int block = 0; block < blocks; ++block) {
    ptx::cp_async_wait<kStages - 2>();
    __syncthreads();
    load();  // into the stage that all warps are done with
    const bf16* xs = stages + block % kStages * kStageElems;
    const bf16* ws = xs + kM * kPitch;
#pragma unroll
    for (int k = 0; k < kK; k += 16) {
      uint32_t p[4][4], q[2][4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        ptx::ldmatrix_x4(p[i], xs + (warp_m + i * 16 + lane % 16) * kPitch + k + lane / 16 * 8);
      }
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int row = warp_n + i * 16 + lane % 8 + lane / 16 * 8;
        ptx::ldmatrix_x4(q[i], ws + row * kPitch + k + lane / 8 % 2 * 8);
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) {
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          ptx::mma_16816<bf16>(sum[i][j], p[i], q[j / 2][j % 2 * 2], q[j / 2][j % 2 * 2 + 1]);
        }
      }
    }
  }
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const ConvColumns columns(a, channel + warp_n + j * 8 + lane % 4 * 2);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const int64_t m = pixel + warp_m + i / 2 * 16 + i % 2 * 8 + lane / 4;
      columns.store(a, m, sum[i / 2][j][i % 2 * 2], sum[i / 2][j][i % 2 * 2 + 1]);
    }
  }
}

template <class T, class P>
__global__ void __launch_bounds__(kThreads)
    pack_kernel(const T* w, P* packed, int64_t elems, int channels, int taps) {
  const int64_t at = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (at >= elems) return;
  const int64_t o = at / (int64_t{channels} * taps), in = at - o * channels * taps;
  const int64_t tap = in / channels, c = in - tap * channels;
  packed[at] = narrow<P>(widen(w[(o * channels + c) * taps + tap]));
}

bool is_mma(const ConvConfig& c) {
  return c == ConvConfig{ConvKernel::mma, kM, kN, kK, kStages};
}

}  // namespace

void load_conv2d(DType dtype, const ConvConfig& config, bool joins_frames) {
  if (config.kernel == ConvKernel::wgmma) return load_conv_hopper(config.block_n);
  if (config.kernel == ConvKernel::mma) {
    return allow_shared_memory(joins_frames ? mma_kernel<true> : mma_kernel<false>, kMmaBytes);
  }
  dtype == DType::f32 ? load_kernel(plain_kernel<float>) : load_kernel(plain_kernel<__nv_bfloat16>);
}

void conv2d(const Conv2dParams& p, const ConvConfig& config, const LaunchContext& context) {
  const auto& a = p.attrs;
  const int64_t out_height = a.out_height(p.kernel_height);
  const int64_t out_width = a.out_width(p.kernel_width), frame = a.height * a.width;
  const auto to_int = [](int64_t x) { return static_cast<int>(x); };
  const Args args = {.x = p.x.data,
                     .before = p.before.data,
                     .w = p.w,
                     .bias = p.bias.data,
                     .bias_dtype = p.bias.dtype,
                     .residual = p.residual.data,
                     .y = p.y.data,
                     .pixels = a.batch * out_height * out_width,
                     .height = to_int(a.height),
                     .width = to_int(a.width),
                     .out_height = to_int(out_height),
                     .out_width = to_int(out_width),
                     .channels = to_int(p.x.cols()),
                     .out = to_int(p.y.cols()),
                     .frames = to_int(p.x.rows() / frame),
                     .before_frames = to_int(p.before.data ? p.before.rows() / frame : 0),
                     .kernel_frames = to_int(p.kernel_frames),
                     .kernel_height = to_int(p.kernel_height),
                     .kernel_width = to_int(p.kernel_width),
                     .k = to_int(p.kernel_frames * p.kernel_height * p.kernel_width * p.x.cols()),
                     .stride = to_int(a.stride),
                     .padding = to_int(a.padding),
                     .padding_above = to_int(a.padding_above()),
                     .upsample = to_int(a.upsample),
                     .frame_stride = to_int(p.frame_stride),
                     .frame_upsample = to_int(p.frame_upsample),
                     .first_lacks = to_int(p.first_lacks),
                     .silu = a.silu};
  if (args.pixels == 0) return;
  const bool bf16_blocks = p.x.dtype == DType::bf16 && args.channels % kK == 0;
  if (config.kernel == ConvKernel::wgmma && bf16_blocks) {
    return conv_hopper(args, p.num_sms, config, context);
  }
  const bool fits =
      config.kernel == ConvKernel::mma ? is_mma(config) && bf16_blocks : config == ConvConfig{};
  if (!fits) fail(ErrorCode::kUnsupported, "convolution: no kernel for {}", to_string(config));
  const dim3 grid(static_cast<unsigned>(ceil_div(args.pixels, int64_t{config.block_m})),
                  static_cast<unsigned>(ceil_div(p.y.cols(), int64_t{config.block_n})));
  if (config.kernel == ConvKernel::mma) {
    return launch_kernel(context, p.joins_frames() ? mma_kernel<true> : mma_kernel<false>, grid,
                         dim3(kThreads), kMmaBytes, args);
  }
  p.x.dtype == DType::f32
      ? launch_kernel(context, plain_kernel<float>, grid, dim3(kThreads), 0, args)
      : launch_kernel(context, plain_kernel<__nv_bfloat16>, grid, dim3(kThreads), 0, args);
}

void pack_conv_weights(const TensorView& w, void* packed, DType dtype,
                       const LaunchContext& context) {
  const int64_t elems = w.shape.elems();
  const auto run = [&]<class T, class P>() {
    launch_kernel(context, pack_kernel<T, P>,
                  dim3(static_cast<unsigned>(ceil_div(elems, int64_t{kThreads}))), dim3(kThreads),
                  0, w.as<const T>(), static_cast<P*>(packed), elems, static_cast<int>(w.shape[1]),
                  static_cast<int>(elems / (w.shape[0] * w.shape[1])));
  };
  const auto from = [&]<class P>() {
    if (w.dtype == DType::f32) return run.template operator()<float, P>();
    if (w.dtype == DType::bf16) return run.template operator()<__nv_bfloat16, P>();
    if (w.dtype == DType::f16) return run.template operator()<__half, P>();
    fail(ErrorCode::kUnsupported, "convolution: weights of {}, wanted are f32, f16 or bf16",
         name(w.dtype));
  };
  dtype == DType::f32 ? from.template operator()<float>()
                      : from.template operator()<__nv_bfloat16>();
}

}  // namespace braid::cuda
