#include <algorithm>

#include "braid/base/error.h"
#include "braid/kernels/cuda/comm/device/across_machines.h"
#include "braid/kernels/cuda/comm/device/rows.h"
#include "braid/kernels/cuda/comm/device/wait.cuh"

namespace braid::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kMostCtas = 32;

struct ColumnArgs {
  const std::byte* x;
  std::byte* y[kMaxCommRanks];
  int64_t x_row;  // bytes
  int64_t y_row;
  int64_t begin;  // bytes into a row of y
  int64_t rows;
  const int64_t* live;
};

// Columns of all rows to every rank, the own one last. Loads of several words are under way
// together.
template <class Word>
__device__ void store_columns(const ColumnArgs& a, const CommView& view, int64_t rows) {
  constexpr int kTogether = 4;
  const auto words = static_cast<uint32_t>(a.x_row / static_cast<int64_t>(sizeof(Word)));
  const auto all = static_cast<uint32_t>(rows) * words, step = gridDim.x * blockDim.x;
  for (uint32_t first = blockIdx.x * blockDim.x + threadIdx.x; first < all;
       first += kTogether * step) {
    Word data[kTogether];
    int64_t to[kTogether];
#pragma unroll
    for (int n = 0; n < kTogether; ++n) {
      const uint32_t i = first + n * step, t = i / words, w = i - t * words;
      to[n] = i < all ? t * a.y_row + a.begin + w * int64_t{sizeof(Word)} : -1;
      if (i < all) data[n] = reinterpret_cast<const Word*>(a.x + t * a.x_row)[w];
    }
    for (int k = 1; k <= view.ranks; ++k) {
      std::byte* const y = a.y[(view.rank + k) % view.ranks];
#pragma unroll
      for (int n = 0; n < kTogether; ++n) {
        if (to[n] >= 0) *reinterpret_cast<Word*>(y + to[n]) = data[n];
      }
    }
  }
}

template <class Word>
__global__ __launch_bounds__(kThreads) void gather_columns_kernel(
    const __grid_constant__ CommView view, const __grid_constant__ ColumnArgs a) {
  ptx::grid_dependency_wait();
  ptx::grid_launch_dependents();  // not before: the next kernel would hold SMs meanwhile
  const int64_t rows = a.live ? min(*a.live, a.rows) : a.rows;
  const uint32_t epoch = begin_epoch_together(view);
  if (epoch != 0 && barrier_with_peers(view, 2 * epoch - 1)) {
    store_columns<Word>(a, view, rows);
    barrier_with_peers(view, 2 * epoch);
  }
  end_epoch(view, epoch);
}

struct ShardArgs {
  const std::byte* x;
  std::byte* y;
  int64_t row_bytes;
  int64_t rows;
  const int64_t* live;
  int ranks;
  int rank;
};

__global__ __launch_bounds__(kThreads) void take_shard_kernel(const __grid_constant__ ShardArgs a) {
  ptx::grid_launch_dependents();
  ptx::grid_dependency_wait();
  const Range part = even_part(a.live ? min(*a.live, a.rows) : a.rows, a.ranks, a.rank);
  const auto* from = reinterpret_cast<const uint16_t*>(a.x + part.begin * a.row_bytes);
  auto* to = reinterpret_cast<uint16_t*>(a.y);
  const int64_t words = (part.end - part.begin) * a.row_bytes / 2;
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < words; i += step) {
    to[i] = from[i];
  }
}

unsigned ctas_for(int64_t words) {
  return static_cast<unsigned>(
      std::clamp<int64_t>(ceil_div(words, int64_t{4 * kThreads}), 1, kMostCtas));
}

std::string columns_key(const GatherColumnsParams& p) {
  return fmt::format("columns {} [{}, {}]", name(p.y.dtype), p.y.shape[0], p.y.cols());
}

void gather_across(DeviceComm& comm, const GatherColumnsParams& p, const LaunchContext& context) {
  AcrossParams a{};
  a.op = CollectiveOp::all_gather;
  a.columns = true;
  a.x = p.x.data;
  a.y = p.y.data;
  a.rows = p.y.shape[0];
  a.row_bytes = p.y.row_bytes;
  a.live = p.live_rows;
  for (size_t q = 0; q < p.parts.size(); ++q) {
    a.begin_bytes[q] = bytes_of(p.y.dtype, p.parts[q].begin);
    a.part_bytes[q] = bytes_of(p.y.dtype, p.parts[q].size());
  }
  comm.across()->run(columns_key(p), a, place_kernel_of(), comm.tag(CollectiveOp::all_gather),
                     context);
}

}  // namespace

void prepare_gather_columns(DeviceComm& comm, const GatherColumnsParams& p) {
  if (!comm.limits().across_machines) return;
  BRAID_CHECK(std::ssize(p.parts) == comm.size(), "{} parts of columns for {} ranks",
              p.parts.size(), comm.size());
  int64_t most = 0;
  for (const Range& part : p.parts) most = std::max(most, part.size());
  const std::vector<int64_t> put(comm.size(), p.y.shape[0] * p.x.row_bytes);
  comm.across()->prepare(columns_key(p), put, p.y.shape[0] * bytes_of(p.y.dtype, most), true);
}

void gather_columns(DeviceComm& comm, const GatherColumnsParams& p, const LaunchContext& context) {
  if (comm.limits().across_machines) {
    gather_across(comm, p, context);
    return;
  }
  ColumnArgs a{.x = p.x.data,
               .y = {},
               .x_row = p.x.row_bytes,
               .y_row = p.y.row_bytes,
               .begin = bytes_of(p.y.dtype, p.begin),
               .rows = p.y.shape[0],
               .live = p.live_rows};
  for (int q = 0; q < comm.size(); ++q) {
    a.y[q] = comm.at_peer(p.y.data, q);
    BRAID_CHECK(a.y[q] != nullptr, "gather_columns: y is not in memory that the peers can reach");
    comm.count(comm.tag(CollectiveOp::all_gather), q,
               {.put = q == comm.index() ? 0 : a.rows * a.x_row, .get = 0});
  }
  // Words of 16 bytes, or of 4, or 2 where columns are odd.
  const auto aligned = [&](int64_t bytes) {
    return a.x_row % bytes == 0 && a.begin % bytes == 0 && a.y_row % bytes == 0 &&
           (reinterpret_cast<uintptr_t>(a.x) | reinterpret_cast<uintptr_t>(p.y.data)) %
                   static_cast<uintptr_t>(bytes) ==
               0;
  };
  // Every rank launches equal CTAs: enough for the whole value's share.
  const unsigned ctas = ctas_for(a.rows * a.y_row / 4 / comm.size());
  const CommView view = comm.view(comm.tag(CollectiveOp::all_gather));
  const auto launch = [&](auto kernel) {
    launch_kernel(context, kernel, dim3(ctas), dim3(kThreads), 0, view, a);
  };
  if (aligned(16)) return launch(gather_columns_kernel<uint4>);
  aligned(4) ? launch(gather_columns_kernel<uint32_t>) : launch(gather_columns_kernel<uint16_t>);
}

void take_shard(const TakeShardParams& p, const LaunchContext& context) {
  const ShardArgs a{.x = p.x.data,
                    .y = p.y.data,
                    .row_bytes = p.x.row_bytes,
                    .rows = p.x.shape[0],
                    .live = p.live_rows,
                    .ranks = p.ranks,
                    .rank = p.rank};
  launch_kernel(context, take_shard_kernel, dim3(4 * ctas_for(p.y.bytes() / 2)), dim3(kThreads), 0,
                a);
}

}  // namespace braid::cuda
