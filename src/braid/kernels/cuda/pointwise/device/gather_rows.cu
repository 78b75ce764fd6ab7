#include "braid/kernels/cuda/pointwise/device/gather_rows.h"

#include "braid/base/error.h"
#include "braid/base/math.h"
#include "braid/kernels/cuda/pointwise/device/live.cuh"
#include "braid/kernels/cuda/ptx/barrier.h"

namespace braid::cuda {
namespace {

struct GatherArgs {
  const int32_t* rows;    // [R]
  const BatchPart* part;  // one
  int64_t x_rows;
  int64_t y_rows;
  int words;  // of a row
  bool zeros_for_none;
};

// All bits set are a NaN of each float type.
template <class Word>
__device__ inline Word all_bits(uint32_t bits) {
  if constexpr (std::is_same_v<Word, uint4>) {
    return make_uint4(bits, bits, bits, bits);
  } else {
    return static_cast<Word>(bits);
  }
}

template <class Word>
__global__ void __launch_bounds__(512)
    gather_rows_kernel(Rows<const Word> x, Rows<Word> y, GatherArgs args) {
  ptx::grid_launch_dependents();
  const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
  ptx::grid_dependency_wait();
  const LiveRows rows = {&args.part->count.row, args.y_rows};
  if (i >= args.y_rows) return;
  const int32_t wanted = args.rows[i];
  const int64_t row = wanted - args.part->begin.token;
  if (rows.dead_early(i)) return;
  const int64_t live = rows.count();
  const bool known = row >= 0 && row < args.x_rows;
  const auto none = all_bits<Word>(args.zeros_for_none && wanted == -1 ? 0 : ~0u);
  constexpr int kBatch = 4;  // words read before the first is written
  const int step = blockDim.x * gridDim.y;
  for (int first = blockIdx.y * blockDim.x + threadIdx.x; first < args.words;
       first += kBatch * step) {
    Word word[kBatch];
#pragma unroll
    for (int n = 0; n < kBatch; ++n) {
      const int at = first + n * step;
      word[n] = known && at < args.words ? x.data[row * x.stride + at] : none;
    }
    if (i >= live) return;
#pragma unroll
    for (int n = 0; n < kBatch; ++n) {
      const int at = first + n * step;
      if (at < args.words) y.data[i * y.stride + at] = word[n];
    }
  }
}

// Bytes of the widest access that rows of x and y allow.
int word_bytes(const GatherRowsParams& p) {
  const auto unit = static_cast<int>(info(p.x.dtype).block_bytes);
  for (int bytes : {16, 4}) {
    const int elems = bytes / unit;
    if (p.x.cols() % elems == 0 && rows_aligned({p.x, p.y}, elems)) return bytes;
  }
  return unit;
}

}  // namespace

RowsDesc gather_rows_desc(const GatherRowsParams& p) {
  require_matrix("gather_rows", "x", p.x, {DType::f32, DType::f16, DType::bf16});
  require_matrix("gather_rows", "rows", p.rows, {DType::i32});
  require_matrix("gather_rows", "y", p.y, {p.x.dtype});
  require_shape("gather_rows", "y", p.y, {p.rows.shape[0], p.x.cols()});
  if (!p.part) fail(ErrorCode::kInvalidArgument, "gather_rows: no part");
  const int64_t words = bytes_of(p.x.dtype, p.x.cols()) / word_bytes(p);
  return {.rows = p.y.rows(), .cols = words, .vector = 1};
}

void gather_rows(const GatherRowsParams& p, const RowsConfig& config, LaunchContext context) {
  const RowsDesc desc = gather_rows_desc(p);
  if (desc.rows == 0 || desc.cols == 0) return;
  const GatherArgs args = {.rows = p.rows.as<const int32_t>(),
                           .part = p.part,
                           .x_rows = p.x.rows(),
                           .y_rows = p.y.rows(),
                           .words = static_cast<int>(desc.cols),
                           .zeros_for_none = p.zeros_for_none};
  const dim3 grid = map_grid("gather_rows", config, desc.rows, desc.cols, p.x.cols());
  const auto run = [&]<class Word>(Word) {
    launch_kernel(context, gather_rows_kernel<Word>, grid, dim3(config.lanes, config.rows_per_cta),
                  0, rows_of<const Word>(p.x), rows_of<Word>(p.y), args);
  };
  switch (word_bytes(p)) {
    case 16:
      return run(uint4{});
    case 4:
      return run(uint32_t{});
    default:
      return run(uint16_t{});
  }
}

}  // namespace braid::cuda
