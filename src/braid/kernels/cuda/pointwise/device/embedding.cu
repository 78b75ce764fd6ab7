#include "braid/kernels/cuda/pointwise/device/embedding.h"

#include "braid/base/error.h"
#include "braid/base/math.h"
#include "braid/kernels/cuda/pointwise/device/dequantize.cuh"
#include "braid/kernels/cuda/pointwise/device/live.cuh"
#include "braid/kernels/cuda/pointwise/device/vector.cuh"
#include "braid/kernels/cuda/ptx/barrier.h"

namespace braid::cuda {
namespace {

struct EmbeddingArgs {
  const int32_t* ids;      // [T]
  const std::byte* table;  // [V, C], rows `row_bytes` apart
  int64_t row_bytes;
  int64_t vocabulary;
  float scale;
  LiveRows live;
  int vectors;  // of a row
};

template <class T>
constexpr bool kIsBlock =
    std::is_class_v<T> && !std::is_same_v<T, __half> && !std::is_same_v<T, __nv_bfloat16>;

// Vector `at` in a table row.
template <class T, int V>
__device__ inline void load_table(const std::byte* row, int at, float (&x)[V]) {
  if constexpr (kIsBlock<T>) {
    static_assert(V == 8);
    constexpr int kVectors = sizeof(T) >= 144 ? 32 : 4;
    const T& block = reinterpret_cast<const T*>(row)[at / kVectors];
    dequantize8(block, at % kVectors * 8, x);
  } else {
    widen(load_constant<T, V>(reinterpret_cast<const T*>(row) + at * V), x);
  }
}

template <class T, class Y, int V>
__global__ void __launch_bounds__(512) embedding_kernel(Rows<Y> y, EmbeddingArgs args) {
  ptx::grid_launch_dependents();
  const int64_t row = static_cast<int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
  ptx::grid_dependency_wait();
  if (row >= args.live.capacity) return;
  const int32_t id = args.ids[row];
  if (args.live.dead_early(row)) return;
  const int64_t live = args.live.count();
  const bool known = id >= 0 && id < args.vocabulary;
  const std::byte* from = args.table + (known ? id * args.row_bytes : 0);
  // Some vectors at a time, all read before the first is written.
  constexpr int kBatch = kIsBlock<T> ? 1 : 4;
  const int step = blockDim.x * gridDim.y;
  for (int first = blockIdx.y * blockDim.x + threadIdx.x; first < args.vectors;
       first += kBatch * step) {
    float x[kBatch][V];
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      const int at = first + i * step;
      if (known && at < args.vectors) load_table<T, V>(from, at, x[i]);
    }
    if (row >= live) return;
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      const int at = first + i * step;
      if (at >= args.vectors) break;
#pragma unroll
      for (int j = 0; j < V; ++j) {
        x[i][j] = known ? x[i][j] * args.scale : __int_as_float(0x7fc00000);
      }
      store(y.data + row * y.stride + at * V, x[i]);
    }
  }
}

template <class T, class Y>
void launch(const EmbeddingParams& p, int vector, const RowsConfig& config,
            const LaunchContext& context) {
  const int64_t vectors = p.y.cols() / vector;
  const EmbeddingArgs args = {.ids = p.ids.as<const int32_t>(),
                              .table = p.table.data,
                              .row_bytes = p.table.row_bytes,
                              .vocabulary = p.table.rows(),
                              .scale = p.scale,
                              .live = {p.rows, p.y.rows()},
                              .vectors = static_cast<int>(vectors)};
  if (p.y.rows() == 0 || vectors == 0) return;
  const dim3 grid = map_grid("embedding", config, p.y.rows(), vectors, p.y.cols());
  const auto run = [&]<int V>() {
    launch_kernel(context, embedding_kernel<T, Y, V>, grid, dim3(config.lanes, config.rows_per_cta),
                  0, rows_of<Y>(p.y), args);
  };
  if constexpr (kIsBlock<T>) {
    run.template operator()<8>();
  } else {
    constexpr int kWide = sizeof(T) == 2 && sizeof(Y) == 2 ? 8 : 4;
    vector == 1   ? run.template operator()<1>()
    : vector == 4 ? run.template operator()<4>()
                  : run.template operator()<kWide>();
  }
}

template <class Y>
void launch_any(const EmbeddingParams& p, int vector, const RowsConfig& config,
                const LaunchContext& context) {
  switch (p.table.dtype) {
    case DType::f32:
      return launch<float, Y>(p, vector, config, context);
    case DType::f16:
      return launch<__half, Y>(p, vector, config, context);
    case DType::bf16:
      return launch<__nv_bfloat16, Y>(p, vector, config, context);
    case DType::q4_0:
      return launch<BlockQ4_0, Y>(p, vector, config, context);
    case DType::q4_1:
      return launch<BlockQ4_1, Y>(p, vector, config, context);
    case DType::q5_0:
      return launch<BlockQ5_0, Y>(p, vector, config, context);
    case DType::q5_1:
      return launch<BlockQ5_1, Y>(p, vector, config, context);
    case DType::q8_0:
      return launch<BlockQ8_0, Y>(p, vector, config, context);
    case DType::q4_k:
      return launch<BlockQ4_K, Y>(p, vector, config, context);
    case DType::q5_k:
      return launch<BlockQ5_K, Y>(p, vector, config, context);
    case DType::q6_k:
      return launch<BlockQ6_K, Y>(p, vector, config, context);
    case DType::i32:
      break;
  }
  unsupported_types("embedding", {p.table.dtype});
}

}  // namespace

RowsDesc embedding_desc(const EmbeddingParams& p) {
  using enum DType;
  require_matrix("embedding", "ids", p.ids, {i32});
  require_matrix("embedding", "table", p.table,
                 {f32, f16, bf16, q4_0, q4_1, q5_0, q5_1, q8_0, q4_k, q5_k, q6_k});
  require_matrix("embedding", "y", p.y, {f32, bf16});
  const int64_t cols = p.table.cols();
  require_shape("embedding", "y", p.y, {p.ids.shape[0], cols});
  if (cols > (1 << 24)) {
    fail(ErrorCode::kUnsupported, "embedding: rows of {}, at most {}", cols, 1 << 24);
  }
  RowsDesc desc = {.rows = p.y.rows(), .cols = cols, .vector = 8};
  if (!is_quantized(p.table.dtype)) {
    desc.vector = vector_of(cols, {p.table, p.y});
    return desc;
  }
  if (p.table.row_bytes % 2 != 0 || reinterpret_cast<uintptr_t>(p.table.data) % 2 != 0 ||
      !rows_aligned({p.y}, 8)) {
    fail(ErrorCode::kUnsupported, "embedding: rows of {} blocks or of y are not aligned",
         name(p.table.dtype));
  }
  return desc;
}

void embedding(const EmbeddingParams& p, const RowsConfig& config, LaunchContext context) {
  const int vector = embedding_desc(p).vector;
  p.y.dtype == DType::f32 ? launch_any<float>(p, vector, config, context)
                          : launch_any<__nv_bfloat16>(p, vector, config, context);
}

}  // namespace braid::cuda
