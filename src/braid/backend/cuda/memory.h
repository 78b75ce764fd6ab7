#pragma once

#include "braid/backend/backend.h"

namespace braid::cuda {

// Memory on a GPU. Fails with kResource, naming the wanted and the free bytes.
class CudaMemory : public DeviceMemory {
 public:
  CudaMemory(int device, int64_t bytes);
  ~CudaMemory() override;
  CudaMemory(const CudaMemory&) = delete;
  CudaMemory& operator=(const CudaMemory&) = delete;

  std::byte* data() override { return data_; }
  int64_t bytes() const override { return bytes_; }

 private:
  const int device_;
  const int64_t bytes_;
  std::byte* data_ = nullptr;
};

// Host memory that every GPU in the process reads and writes at the same address.
class PinnedMemory : public DeviceMemory {
 public:
  explicit PinnedMemory(int64_t bytes);
  ~PinnedMemory() override;
  PinnedMemory(const PinnedMemory&) = delete;
  PinnedMemory& operator=(const PinnedMemory&) = delete;

  std::byte* data() override { return data_; }
  int64_t bytes() const override { return bytes_; }

 private:
  const int64_t bytes_;
  std::byte* data_ = nullptr;
};

}  // namespace braid::cuda
