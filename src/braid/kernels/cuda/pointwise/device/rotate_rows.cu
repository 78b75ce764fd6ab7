#include "braid/kernels/cuda/pointwise/device/rotate_rows.h"

#include "braid/base/error.h"
#include "braid/kernels/cuda/pointwise/device/vector.cuh"
#include "braid/kernels/cuda/ptx/barrier.h"

namespace braid::cuda {
namespace {

struct RotateArgs {
  const float* table;  // [turned, rotary]
  int64_t first, turned;
  int64_t length;  // rows of a sequence
  int64_t rows;
  int rotary, head_dim;
  int vectors;  // of a row
};

template <class T, int V, int kChunks>
__global__ void __launch_bounds__(512) rotate_kernel(Rows<const T> x, Rows<T> y, RotateArgs args) {
  ptx::grid_launch_dependents();
  const int64_t row = static_cast<int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
  const int first = blockIdx.y * blockDim.x * kChunks + threadIdx.x;
  ptx::grid_dependency_wait();
  if (row >= args.rows) return;
  const int64_t at_row = row % args.length - args.first;
  const bool turns = at_row >= 0 && at_row < args.turned;
  const float* angles = args.table + at_row * args.rotary;
  Packed<T, V> packed[kChunks];
#pragma unroll
  for (int i = 0; i < kChunks; ++i) {
    const int at = first + i * blockDim.x;
    if (at < args.vectors) packed[i] = load_packed<T, V>(x.data + row * x.stride + at * V);
  }
#pragma unroll
  for (int i = 0; i < kChunks; ++i) {
    const int at = first + i * blockDim.x;
    if (at >= args.vectors) break;
    float v[V], angle[V];
    widen(packed[i], v);
    const int in_head = at * V % args.head_dim;
    if (turns && in_head < args.rotary) {
      widen(load_packed<float, V>(angles + in_head), angle);
#pragma unroll
      for (int j = 0; j < V; j += 2) {
        const float even = v[j], odd = v[j + 1];
        v[j] = even * angle[j] - odd * angle[j + 1];
        v[j + 1] = odd * angle[j] + even * angle[j + 1];
      }
    }
    store(y.data + row * y.stride + at * V, v);
  }
}

template <class T>
void launch(const RotateRowsParams& p, const RowsDesc& desc, const RowsConfig& config,
            const LaunchContext& context) {
  const int64_t vectors = desc.cols / desc.vector;
  const RotateArgs args = {.table = p.table.as<const float>(),
                           .first = p.attrs.first,
                           .turned = p.table.shape[0],
                           .length = p.x.shape[0] / p.attrs.batch,
                           .rows = desc.rows,
                           .rotary = static_cast<int>(p.table.cols()),
                           .head_dim = static_cast<int>(p.attrs.head_dim),
                           .vectors = static_cast<int>(vectors)};
  const auto run = [&]<int V, int kChunks>() {
    RowsConfig made = config;
    made.chunks = kChunks;
    launch_kernel(context, rotate_kernel<T, V, kChunks>,
                  map_grid("rope_table", made, desc.rows, vectors, desc.cols),
                  dim3(config.lanes, config.rows_per_cta), 0, rows_of<const T>(p.x),
                  rows_of<T>(p.y), args);
  };
  constexpr int kWide = sizeof(T) == 2 ? 8 : 4;
  if (desc.vector == 2) return run.template operator()<2, 4>();
  if (config.chunks == 1) return run.template operator()<kWide, 1>();
  if (config.chunks == 2) return run.template operator()<kWide, 2>();
  run.template operator()<kWide, 4>();
}

}  // namespace

RowsDesc rotate_rows_desc(const RotateRowsParams& p) {
  constexpr std::string_view kOp = "rope_table";
  require_matrix(kOp, "x", p.x, {DType::f32, DType::f16, DType::bf16});
  require_matrix(kOp, "y", p.y, {p.x.dtype});
  require_matrix(kOp, "table", p.table, {DType::f32});
  require_shape(kOp, "y", p.y, p.x.shape);
  const int64_t cols = p.x.cols(), D = p.attrs.head_dim, rotary = p.table.cols();
  if (D < 2 || D % 2 != 0 || rotary % 2 != 0 || rotary > D || !rows_aligned({p.x, p.y}, 2)) {
    fail(ErrorCode::kUnsupported, "rope_table: {} columns of heads of {} turn, even numbers turn",
         rotary, D);
  }
  const int wide = p.x.dtype == DType::f32 ? 4 : 8;
  const bool whole = D % wide == 0 && rotary % wide == 0 && rows_aligned({p.x, p.y}, wide) &&
                     rows_aligned({p.table}, 4);
  return {.rows = p.x.rows(), .cols = cols, .vector = whole ? wide : 2};
}

void rotate_rows(const RotateRowsParams& p, const RowsConfig& config, LaunchContext context) {
  const RowsDesc desc = rotate_rows_desc(p);
  if (desc.rows == 0) return;
  with_type(p.x.dtype, [&]<class T>(T) { launch<T>(p, desc, config, context); });
}

}  // namespace braid::cuda
