#include "braid/kernels/cuda/image/device/latent_scale.h"

#include <algorithm>

#include "braid/base/error.h"
#include "braid/base/math.h"
#include "braid/kernels/cuda/activation.cuh"
#include "braid/kernels/cuda/pointwise/device/operand.h"
#include "braid/kernels/cuda/pointwise/device/vector.cuh"
#include "braid/kernels/cuda/ptx/barrier.h"

namespace braid::cuda {
namespace {

constexpr int kThreads = 256;

struct Args {
  const void *x, *scale, *shift;
  void* y;
  int64_t words;  // vectors of x
  uint32_t channels, frames, height, width;
  uint32_t latent_frames, latent_height, latent_width;
  bool silu;
};

// LatentScaleAttrs::source.
__device__ inline int64_t source(const Args& a, uint32_t pixel) {
  const uint32_t line = pixel / a.width, column = pixel - line * a.width;
  const uint32_t t = line / a.height, row = line - t * a.height;
  const uint32_t rest = a.frames > 1 && a.frames % 2 == 1 ? 1 : 0;
  const uint32_t from =
      t < rest ? 0 : rest + (t - rest) * (a.latent_frames - rest) / (a.frames - rest);
  return int64_t{from * a.latent_height + row * a.latent_height / a.height} * a.latent_width +
         column * a.latent_width / a.width;
}

// T: type of x and y; S: type of scale and shift. A thread has vectors with V channels.
template <class T, class S, int V>
__global__ void __launch_bounds__(kThreads) kernel(const __grid_constant__ Args a) {
  ptx::grid_launch_dependents();
  ptx::grid_dependency_wait();
  const uint32_t vectors = a.channels / V;
  const int64_t step = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t at = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; at < a.words;
       at += step) {
    const auto pixel = static_cast<uint32_t>(at / vectors);
    const int64_t latent =
        source(a, pixel) * a.channels + (at - static_cast<int64_t>(pixel) * vectors) * V;
    float x[V], scale[V], shift[V];
    widen(load_packed<T, V>(static_cast<const T*>(a.x) + at * V), x);
    widen(load_packed<S, V>(static_cast<const S*>(a.scale) + latent), scale);
    widen(load_packed<S, V>(static_cast<const S*>(a.shift) + latent), shift);
#pragma unroll
    for (int j = 0; j < V; ++j) {
      x[j] = x[j] * scale[j] + shift[j];
      if (a.silu) x[j] = activate(false, x[j]);
    }
    store(static_cast<T*>(a.y) + at * V, x);
  }
}

}  // namespace

void latent_scale(const LatentScaleParams& p, const LaunchContext& context) {
  constexpr std::string_view kOp = "latent_scale";
  require_matrix(kOp, "x", p.x, {DType::f32, DType::bf16});
  require_matrix(kOp, "scale", p.scale, {DType::f32, DType::bf16});
  require_matrix(kOp, "shift", p.shift, {p.scale.dtype});
  require_matrix(kOp, "y", p.y, {p.x.dtype});
  const auto& attrs = p.attrs;
  const auto count = [](int64_t n) { return static_cast<uint32_t>(n); };
  const int64_t pixels = p.x.shape[0], C = p.x.cols();
  if (pixels >= int64_t{1} << 31) {
    fail(ErrorCode::kUnsupported, "latent_scale: {} pixels, at most 2^31 - 1 are wanted", pixels);
  }
  const bool whole = C % 4 == 0 && rows_aligned({p.x, p.scale, p.shift, p.y}, 4);
  const int vector = whole ? 4 : 1;
  const Args args = {
      .x = p.x.data,
      .scale = p.scale.data,
      .shift = p.shift.data,
      .y = p.y.data,
      .words = pixels * (C / vector),
      .channels = count(C),
      .frames = count(pixels / (attrs.height * attrs.width)),
      .height = count(attrs.height),
      .width = count(attrs.width),
      .latent_frames = count(p.scale.shape[0] / (attrs.latent_height * attrs.latent_width)),
      .latent_height = count(attrs.latent_height),
      .latent_width = count(attrs.latent_width),
      .silu = attrs.silu};
  if (args.words == 0) return;
  const auto ctas = std::min<int64_t>(ceil_div(args.words, int64_t{4 * kThreads}), 1 << 20);
  with_types(p.x.dtype, p.scale.dtype, [&](auto x, auto scale) {
    using T = decltype(x);
    using S = decltype(scale);
    launch_kernel(context, whole ? kernel<T, S, 4> : kernel<T, S, 1>,
                  dim3(static_cast<unsigned>(ctas)), dim3(kThreads), 0, args);
  });
}

}  // namespace braid::cuda
