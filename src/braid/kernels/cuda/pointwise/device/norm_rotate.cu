#include "braid/kernels/cuda/pointwise/device/norm_rotate.h"

#include <algorithm>

#include "braid/base/error.h"
#include "braid/base/math.h"
#include "braid/kernels/cuda/pointwise/device/reduce.cuh"
#include "braid/kernels/cuda/pointwise/device/vector.cuh"
#include "braid/kernels/cuda/ptx/barrier.h"

namespace braid::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kVector = 8;

template <class T>
struct Args {
  Rows<const T> x[2];
  Rows<T> y[2];
  const void* w[2];
  DType w_dtype[2];
  int heads[2];
  const float* table;  // [turned, kD]
  int64_t first, turned, length, rows;
  float eps;
};

// kD / 8 threads for each head; a CTA has a row's heads of q, then of k.
template <class T, int kD>
__global__ void __launch_bounds__(kThreads) norm_rotate_kernel(const __grid_constant__ Args<T> a) {
  constexpr int kLanes = kD / kVector;
  ptx::grid_launch_dependents();
  const int64_t row = blockIdx.x, turn = row % a.length - a.first;
  const int col = static_cast<int>(threadIdx.x) % kLanes * kVector;
  const bool turns = turn >= 0 && turn < a.turned;
  float w[2][kVector], angle[kVector];
  load_constant(a.w[0], a.w_dtype[0], col, w[0]);
  load_constant(a.w[1], a.w_dtype[1], col, w[1]);
  ptx::grid_dependency_wait();
  if (turns) widen(load_packed<float, kVector>(a.table + turn * kD + col), angle);
  const int heads = a.heads[0] + a.heads[1];
  constexpr int kStep = kThreads / kLanes;
  // Whole warps go on together: lanes of no head shadow the last.
  for (int begin = 0; begin < heads; begin += kStep) {
    const int at = begin + static_cast<int>(threadIdx.x) / kLanes;
    const int head = at < heads ? at : heads - 1;
    const int which = head < a.heads[0] ? 0 : 1;
    const int64_t offset = int64_t{which == 0 ? head : head - a.heads[0]} * kD + col;
    const auto& x = a.x[which];
    float v[kVector];
    widen(load_packed<T, kVector>(x.data + row * x.stride + offset), v);
    float sum = 0;
#pragma unroll
    for (int j = 0; j < kVector; ++j) sum += v[j] * v[j];
    const float scale = rsqrtf(sum_lanes(sum, kLanes) / kD + a.eps);
#pragma unroll
    for (int j = 0; j < kVector; ++j) v[j] *= scale * (which == 0 ? w[0][j] : w[1][j]);
    if (turns) {
#pragma unroll
      for (int j = 0; j < kVector; j += 2) {
        const float even = v[j], odd = v[j + 1];
        v[j] = even * angle[j] - odd * angle[j + 1];
        v[j + 1] = odd * angle[j] + even * angle[j + 1];
      }
    }
    const auto& y = a.y[which];
    if (at < heads) store(y.data + row * y.stride + offset, v);
  }
}

template <class T>
void launch(const NormRotateParams& p, const LaunchContext& context) {
  constexpr std::string_view kOp = "norm_rope_table";
  const auto& rope = p.attrs.rope;
  const int64_t D = rope.head_dim, rows = p.x[0].rows();
  Args<T> args = {.table = p.table.as<const float>(),
                  .first = rope.first,
                  .turned = p.table.shape[0],
                  .length = rows / rope.batch,
                  .rows = rows,
                  .eps = p.attrs.eps};
  require_matrix(kOp, "table", p.table, {DType::f32});
  require_shape(kOp, "table", p.table, {p.table.shape[0], D});
  for (int i = 0; i < 2; ++i) {
    require_matrix(kOp, "x", p.x[i], {p.x[0].dtype});
    require_matrix(kOp, "y", p.y[i], {p.x[0].dtype});
    require_shape(kOp, "y", p.y[i], p.x[i].shape);
    require_matrix(kOp, "w", p.w[i], {DType::f32, DType::f16, DType::bf16});
    if (p.x[i].rows() != rows || p.x[i].cols() % D != 0 ||
        !rows_aligned({p.x[i], p.y[i], p.table}, kVector) ||
        reinterpret_cast<uintptr_t>(p.w[i].data) % 16 != 0) {
      fail(ErrorCode::kInvalidArgument, "{}: rows of {} beside {} rows, heads of {}", kOp,
           to_string(p.x[i].shape), rows, D);
    }
    args.x[i] = rows_of<const T>(p.x[i]);
    args.y[i] = rows_of<T>(p.y[i]);
    args.w[i] = p.w[i].data;
    args.w_dtype[i] = p.w[i].dtype;
    args.heads[i] = static_cast<int>(p.x[i].cols() / D);
  }
  if (rows == 0) return;
  const auto run = [&](auto kernel) {
    launch_kernel(context, kernel, dim3(static_cast<unsigned>(rows)), dim3(kThreads), 0, args);
  };
  if (D == 64) return run(norm_rotate_kernel<T, 64>);
  if (D == 128) return run(norm_rotate_kernel<T, 128>);
  if (D == 256) return run(norm_rotate_kernel<T, 256>);
  fail(ErrorCode::kUnsupported, "{}: heads of {}, wanted are 64, 128 or 256", kOp, D);
}

}  // namespace

void norm_rotate(const NormRotateParams& params, LaunchContext context) {
  require_matrix("norm_rope_table", "x", params.x[0], {DType::f16, DType::bf16});
  params.x[0].dtype == DType::f16 ? launch<__half>(params, context)
                                  : launch<__nv_bfloat16>(params, context);
}

}  // namespace braid::cuda
