#include "braid/fabric/peer/direct_link.h"

#include <limits>

#include "braid/backend/cuda/device.h"
#include "braid/fabric/peer/copy_block.h"
#include "braid/fabric/peer/stream_write.h"

namespace braid::fabric {

DirectLink::DirectLink(const Sender& sender)
    : LinkProxy(sender, std::numeric_limits<int64_t>::max()) {
  const cuda::DeviceScope scope(sender.device);
  stream_ = cuda::make_stream();
  start();
}

DirectLink::~DirectLink() {
  stop();
}

void DirectLink::begin(Job& job) {
  for (const Piece& piece : job.chunks()) {
    copy_async(piece.dst, piece.src, piece.block, stream_.get());
  }
  stream_write(stream_.get(), reinterpret_cast<uint64_t*>(job.done()), job.answer());
}

void DirectLink::rest() {
  over(cudaStreamQuery(stream_.get()));
}

void DirectLink::drain() {
  cudaStreamSynchronize(stream_.get());
}

}  // namespace braid::fabric
