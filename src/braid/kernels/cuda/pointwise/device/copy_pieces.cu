#include "braid/kernels/cuda/pointwise/device/copy_pieces.h"

#include <algorithm>

#include "braid/base/error.h"
#include "braid/base/math.h"
#include "braid/kernels/cuda/pointwise/device/vector.cuh"
#include "braid/kernels/cuda/ptx/barrier.h"

namespace braid::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kEach = 4;  // words of a thread in flight

// Words are numbered through all runs.
template <int kBytes>
__global__ void __launch_bounds__(kThreads)
    copy_kernel(CopyPiece piece, uint32_t words_per_run, int64_t words) {
  using Access = Word<kBytes>;
  ptx::grid_launch_dependents();
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kThreads * kEach + threadIdx.x;
  ptx::grid_dependency_wait();
  Access word[kEach];
  std::byte* to[kEach];
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const int64_t at = first + i * kThreads;
    if (at >= words) break;
    const int64_t run = words <= 0xffffffff
                            ? static_cast<int64_t>(static_cast<uint32_t>(at) / words_per_run)
                            : at / words_per_run;
    const int64_t in_run = (at - run * words_per_run) * kBytes;
    word[i] = *reinterpret_cast<const Access*>(piece.from + run * piece.from_stride + in_run);
    to[i] = piece.to + run * piece.to_stride + in_run;
  }
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    if (first + i * kThreads >= words) break;
    *reinterpret_cast<Access*>(to[i]) = word[i];
  }
}

template <int kBytes>
void launch(const CopyPiece& piece, const LaunchContext& context) {
  const int64_t per_run = piece.bytes / kBytes, words = piece.count * per_run;
  const int64_t ctas = ceil_div(words, int64_t{kThreads} * kEach);
  if (per_run > 0xffffffff || ctas > 0x7fffffff) {
    fail(ErrorCode::kUnsupported, "copy: {} runs of {} bytes", piece.count, piece.bytes);
  }
  launch_kernel(context, copy_kernel<kBytes>, dim3(static_cast<unsigned>(ctas)), dim3(kThreads), 0,
                piece, static_cast<uint32_t>(per_run), words);
}

}  // namespace

int copy_word(const CopyPiece& piece) {
  const auto all = reinterpret_cast<uintptr_t>(piece.from) | reinterpret_cast<uintptr_t>(piece.to) |
                   static_cast<uintptr_t>(piece.bytes) | static_cast<uintptr_t>(piece.from_stride) |
                   static_cast<uintptr_t>(piece.to_stride);
  for (int word : {16, 4, 2}) {
    if (all % static_cast<uintptr_t>(word) == 0) return word;
  }
  fail(ErrorCode::kUnsupported, "copy: runs of {} bytes, wanted is a multiple of 2", piece.bytes);
}

void copy_pieces(std::span<const CopyPiece> pieces, LaunchContext context) {
  for (const CopyPiece& piece : pieces) {
    if (piece.count <= 0 || piece.bytes <= 0) continue;
    switch (copy_word(piece)) {
      case 16:
        launch<16>(piece, context);
        break;
      case 4:
        launch<4>(piece, context);
        break;
      default:
        launch<2>(piece, context);
    }
    context.pdl = true;
  }
}

}  // namespace braid::cuda
