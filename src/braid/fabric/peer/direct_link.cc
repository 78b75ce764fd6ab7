#include "braid/fabric/peer/direct_link.h"

#include <limits>

#include "braid/backend/cuda/device.h"
#include "braid/fabric/peer/copy_block.h"
#include "braid/fabric/peer/stream_write.h"

namespace braid::fabric {

DirectLink::DirectLink(int from_device, std::function<void(std::exception_ptr)> on_error)
    : LinkProxy(from_device, std::numeric_limits<int64_t>::max(), std::move(on_error)) {
  const cuda::DeviceScope scope(from_device);
  stream_ = cuda::make_stream();
  start();
}

DirectLink::~DirectLink() {
  stop();
  cudaStreamSynchronize(stream_.get());
}

void DirectLink::begin(Job& job) {
  for (const Piece& piece : job.chunks()) {
    copy_async(piece.dst, piece.src, piece.block, stream_.get());
  }
  stream_write(stream_.get(), reinterpret_cast<uint64_t*>(job.done()), job.started());
}

void DirectLink::rest() {
  over(cudaStreamQuery(stream_.get()));
}

}  // namespace braid::fabric
