#include "braid/fabric/peer/staged_link.h"

#include <algorithm>
#include <cmath>

#include "braid/backend/cuda/device.h"
#include "braid/fabric/block_chunks.h"
#include "braid/fabric/peer/pace.h"

namespace braid::fabric {

void copy_async(std::byte* dst, const std::byte* src, const Block& block, cudaStream_t stream) {
  constexpr int64_t kMaxPitch = 0x7fffffff;
  if (block.rows == 1 ||
      (block.dst_stride == block.row_bytes && block.src_stride == block.row_bytes)) {
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

StagedLink::StagedLink(int from_device, int to_device, std::optional<Link> speed, uint64_t* port)
    : from_device_(from_device), to_device_(to_device), speed_(speed), port_(port) {
  {
    const cuda::DeviceScope guard(from_device_);
    out_ = cuda::make_stream();
    for (Chunk& chunk : chunks_) chunk.full = cuda::make_event();
  }
  {
    const cuda::DeviceScope guard(to_device_);
    in_ = cuda::make_stream();
    for (Chunk& chunk : chunks_) chunk.empty = cuda::make_event();
  }
  void* ring = nullptr;
  cuda::check_cuda(
      cudaHostAlloc(&ring, kChunks * kChunkBytes, cudaHostAllocPortable | cudaHostAllocMapped),
      "pinned memory of an emulated link");
  for (int i = 0; i < kChunks; ++i) {
    chunks_[i].memory = static_cast<std::byte*>(ring) + i * kChunkBytes;
  }
}

StagedLink::~StagedLink() {
  cudaStreamSynchronize(out_.get());
  cudaStreamSynchronize(in_.get());
  cudaFreeHost(chunks_[0].memory);
}

void StagedLink::copy_chunk(std::byte* dst, const std::byte* src, const Block& block, bool last) {
  Chunk& chunk = chunks_[next_];
  next_ = (next_ + 1) % kChunks;
  {
    const cuda::DeviceScope guard(from_device_);
    cuda::make_wait(out_.get(), chunk.empty);  // nothing was recorded the first time: no wait
    copy_async(chunk.memory, src, {block.row_bytes, block.rows, block.row_bytes, block.src_stride},
               out_.get());
    if (speed_) {
      const double ns = static_cast<double>(block.bytes()) / speed_->bytes_per_second * 1e9;
      launch_pace(port_, std::llround(ns), last ? std::llround(speed_->latency_seconds * 1e9) : 0,
                  out_.get());
    }
    cuda::record(chunk.full, out_.get());
  }
  const cuda::DeviceScope guard(to_device_);
  cuda::make_wait(in_.get(), chunk.full);
  copy_async(dst, chunk.memory, {block.row_bytes, block.rows, block.dst_stride, block.row_bytes},
             in_.get());
  cuda::record(chunk.empty, in_.get());
}

void StagedLink::copy(std::byte* dst, const std::byte* src, const Block& block) {
  const std::vector<BlockChunk> chunks = chunks_of(block, kChunkBytes);
  for (const BlockChunk& chunk : chunks) {
    copy_chunk(dst + chunk.dst_offset, src + chunk.src_offset, chunk.block,
               &chunk == &chunks.back());
  }
}

}  // namespace braid::fabric
