#pragma once

#include "braid/backend/backend.h"

namespace braid {

// Host memory. Fails with kResource for lack of memory.
class HostMemory : public DeviceMemory {
 public:
  explicit HostMemory(int64_t bytes);
  ~HostMemory() override;
  HostMemory(const HostMemory&) = delete;
  HostMemory& operator=(const HostMemory&) = delete;

  std::byte* data() override { return static_cast<std::byte*>(data_); }
  int64_t bytes() const override { return bytes_; }

 private:
  int64_t bytes_;
  void* data_;
};

}  // namespace braid
