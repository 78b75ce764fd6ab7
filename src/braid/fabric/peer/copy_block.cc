#include "braid/fabric/peer/copy_block.h"

#include "braid/backend/cuda/check.h"

namespace braid::fabric {

void copy_async(std::byte* dst, const std::byte* src, const Block& block, cudaStream_t stream) {
  constexpr int64_t kMaxPitch = 0x7fffffff;
  if (block.packed()) {
    cuda::check_cuda(cudaMemcpyAsync(dst, src, block.bytes(), cudaMemcpyDefault, stream), "copy");
  } else if (block.dst_stride <= kMaxPitch && block.src_stride <= kMaxPitch) {
    cuda::check_cuda(cudaMemcpy2DAsync(dst, block.dst_stride, src, block.src_stride,
                                       block.row_bytes, block.rows, cudaMemcpyDefault, stream),
                     "strided copy");
  } else {
    for (int64_t r = 0; r < block.rows; ++r) {
      cuda::check_cuda(cudaMemcpyAsync(dst + r * block.dst_stride, src + r * block.src_stride,
                                       block.row_bytes, cudaMemcpyDefault, stream),
                       "copy of a row");
    }
  }
}

}  // namespace braid::fabric
