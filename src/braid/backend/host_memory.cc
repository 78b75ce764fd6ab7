#include "braid/backend/host_memory.h"

#include <sys/mman.h>

#include <algorithm>

#include "braid/base/error.h"

namespace braid {

HostMemory::HostMemory(int64_t bytes) : bytes_(std::max<int64_t>(bytes, 1)) {
  data_ = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
               -1, 0);
  if (data_ == MAP_FAILED) {
    fail(ErrorCode::kResource, "out of memory: {} bytes asked for", bytes_);
  }
}

HostMemory::~HostMemory() {
  munmap(data_, bytes_);
}

}  // namespace braid
