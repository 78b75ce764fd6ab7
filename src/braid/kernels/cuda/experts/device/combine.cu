#include "braid/base/math.h"
#include "braid/kernels/cuda/experts/device/combine.h"
#include "braid/kernels/cuda/pointwise/device/operand.h"
#include "braid/kernels/cuda/pointwise/device/vector.cuh"
#include "braid/kernels/cuda/ptx/barrier.h"

namespace braid::cuda {
namespace {

using bf16 = __nv_bfloat16;
constexpr int kThreads = 256;

struct Args {
  const float* weight;
  const int32_t* place;
  const float* gate;
  Rows<const bf16> x, shared;
  Rows<bf16> y;
  int k, cols;
  const int64_t* rows;
  int64_t capacity;
};

// A token for each blockIdx.x; kWidth columns a thread.
template <int kWidth>
__global__ void __launch_bounds__(kThreads) combine_kernel(const __grid_constant__ Args a) {
  ptx::grid_launch_dependents();
  ptx::grid_dependency_wait();
  const int64_t t = blockIdx.x;
  const int column = static_cast<int>(blockIdx.y * kThreads + threadIdx.x) * kWidth;
  if (a.rows && t >= __ldcg(reinterpret_cast<const long long*>(a.rows))) return;
  if (column >= a.cols) return;
  float y[kWidth] = {};
  const auto add = [&](const bf16* row, float factor) {
    using Access = Word<kWidth * 2>;
    Packed<bf16, kWidth> packed;
    packed.word[0] = __ldcg(reinterpret_cast<const Access*>(row + column));
    float x[kWidth];
    widen(packed, x);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) y[i] = fmaf(factor, x[i], y[i]);
  };
#pragma unroll 4
  for (int j = 0; j < a.k; ++j) {
    add(a.x.data + __ldcg(a.place + t * a.k + j) * a.x.stride, __ldcg(a.weight + t * a.k + j));
  }
  if (a.shared.data) {
    add(a.shared.data + t * a.shared.stride, a.gate ? 1 / (1 + expf(-__ldcg(a.gate + t))) : 1);
  }
  store(a.y.data + t * a.y.stride + column, y);
}

}  // namespace

void combine(const CombineParams& p, LaunchContext context) {
  for (const TensorView& view : {p.x, p.y}) require_matrix("combine", "x", view, {DType::bf16});
  if (p.shared.data) require_matrix("combine", "shared", p.shared, {DType::bf16});
  const Args args = {.weight = p.weight,
                     .place = p.place,
                     .gate = p.gate,
                     .x = rows_of<const bf16>(p.x),
                     .shared = rows_of<const bf16>(p.shared),
                     .y = rows_of<bf16>(p.y),
                     .k = p.k,
                     .cols = static_cast<int>(p.y.cols()),
                     .rows = p.rows,
                     .capacity = p.y.shape[0]};
  if (args.capacity == 0) return;
  const int width = vector_of(args.cols, {p.x, p.shared, p.y});
  const dim3 grid(static_cast<unsigned>(args.capacity),
                  static_cast<unsigned>(ceil_div(args.cols, int64_t{kThreads} * width)));
  const auto run = [&]<int kWidth>() {
    launch_kernel(context, combine_kernel<kWidth>, grid, dim3(kThreads), 0, args);
  };
  width == 8   ? run.template operator()<8>()
  : width == 4 ? run.template operator()<4>()
               : run.template operator()<1>();
}

}  // namespace braid::cuda
