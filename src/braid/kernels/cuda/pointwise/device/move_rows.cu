#include "braid/kernels/cuda/pointwise/device/move_rows.h"

#include "braid/base/error.h"
#include "braid/base/math.h"
#include "braid/kernels/cuda/pointwise/device/live.cuh"
#include "braid/kernels/cuda/ptx/barrier.h"

namespace braid::cuda {
namespace {

struct MoveArgs {
  const std::byte* x[2];  // [x_rows, words]
  std::byte* y[2];        // [y_rows, words]
  int64_t x_rows;
  int64_t y_rows;
  const int32_t* from;  // [n], or null
  const int32_t* to;    // [n], or null
  LiveRows live;
  int words;  // of a row
};

template <class Word>
__global__ void __launch_bounds__(512) move_rows_kernel(MoveArgs args) {
  ptx::grid_launch_dependents();
  const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
  ptx::grid_dependency_wait();
  if (i >= args.live.capacity || i >= args.live.count()) return;
  const int64_t from = args.from ? args.from[i] : i;
  const int64_t to = args.to ? args.to[i] : i;
  if (from < 0 || from >= args.x_rows || to < 0 || to >= args.y_rows) return;
  const auto* x = reinterpret_cast<const Word*>(args.x[blockIdx.z]) + from * args.words;
  auto* y = reinterpret_cast<Word*>(args.y[blockIdx.z]) + to * args.words;
  constexpr int kBatch = 4;  // words read before the first is written
  const int step = blockDim.x * gridDim.y;
  for (int first = blockIdx.y * blockDim.x + threadIdx.x; first < args.words;
       first += kBatch * step) {
    Word word[kBatch];
#pragma unroll
    for (int n = 0; n < kBatch; ++n) {
      if (first + n * step < args.words) word[n] = x[first + n * step];
    }
#pragma unroll
    for (int n = 0; n < kBatch; ++n) {
      if (first + n * step < args.words) y[first + n * step] = word[n];
    }
  }
}

int64_t rows_in(const TensorView& view, int64_t row_bytes) {
  return view.bytes() / row_bytes;
}

// Bytes of the widest access that the rows allow.
int word_bytes(const MoveRowsParams& p) {
  for (int bytes : {16, 4}) {
    bool aligned = p.row_bytes % bytes == 0;
    for (int v = 0; v < p.num; ++v) {
      for (const TensorView* view : {&p.x[v], &p.y[v]}) {
        aligned = aligned && reinterpret_cast<uintptr_t>(view->data) % bytes == 0;
      }
    }
    if (aligned) return bytes;
  }
  return 2;
}

}  // namespace

RowsDesc move_rows_desc(const MoveRowsParams& p) {
  if (p.num < 1 || p.num > 2 || p.row_bytes < 2 || p.row_bytes % 2 != 0) {
    fail(ErrorCode::kInvalidArgument,
         "move_rows: {} values (1 or 2) with rows of {} bytes (even, at least 2)", p.num,
         p.row_bytes);
  }
  for (int v = 0; v < p.num; ++v) {
    const bool same = p.x[v].dtype == p.y[v].dtype && p.x[v].bytes() == p.x[0].bytes() &&
                      p.y[v].bytes() == p.y[0].bytes();
    if (!same || p.x[v].bytes() % p.row_bytes != 0 || p.y[v].bytes() % p.row_bytes != 0) {
      fail(ErrorCode::kUnsupported, "move_rows: {} of {} to {} of {} in rows of {} bytes",
           name(p.x[v].dtype), to_string(p.x[v].shape), name(p.y[v].dtype), to_string(p.y[v].shape),
           p.row_bytes);
    }
  }
  for (const TensorView* index : {&p.from, &p.to}) {
    if (index->data == nullptr) continue;
    require_matrix("move_rows", "indices", *index, {DType::i32});
    require_shape("move_rows", "indices", *index, {p.n});
  }
  if ((!p.from.data && p.n > rows_in(p.x[0], p.row_bytes)) ||
      (!p.to.data && p.n > rows_in(p.y[0], p.row_bytes))) {
    fail(ErrorCode::kInvalidArgument, "move_rows: {} rows of {} to {}", p.n,
         to_string(p.x[0].shape), to_string(p.y[0].shape));
  }
  return {.rows = p.n, .cols = p.row_bytes / word_bytes(p), .vector = 1};
}

void move_rows(const MoveRowsParams& p, const RowsConfig& config, LaunchContext context) {
  const RowsDesc desc = move_rows_desc(p);
  if (desc.rows == 0) return;
  const MoveArgs args = {.x = {p.x[0].data, p.x[1].data},
                         .y = {p.y[0].data, p.y[1].data},
                         .x_rows = rows_in(p.x[0], p.row_bytes),
                         .y_rows = rows_in(p.y[0], p.row_bytes),
                         .from = p.from.as<const int32_t>(),
                         .to = p.to.as<const int32_t>(),
                         .live = {p.rows, p.n},
                         .words = static_cast<int>(desc.cols)};
  dim3 grid = map_grid("move_rows", config, desc.rows, desc.cols, p.row_bytes);
  grid.z = static_cast<unsigned>(p.num);
  const auto launch = [&](auto kernel) {
    launch_kernel(context, kernel, grid, dim3(config.lanes, config.rows_per_cta), 0, args);
  };
  switch (word_bytes(p)) {
    case 16:
      return launch(move_rows_kernel<uint4>);
    case 4:
      return launch(move_rows_kernel<uint32_t>);
    default:
      return launch(move_rows_kernel<uint16_t>);
  }
}

}  // namespace braid::cuda
