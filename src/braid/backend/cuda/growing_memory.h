#pragma once

#include <optional>
#include <vector>

#include "braid/backend/cuda/memory.h"

namespace braid::cuda {

// Memory on a GPU that grows in place. All addresses exist from the start; back() puts memory
// behind the first of them. Pointers and captured graphs stay valid. Only this GPU may read
// the memory: peers read arenas. A GPU without virtual memory management gives all memory at
// once.
class GrowingMemory : public DeviceMemory {
 public:
  // Takes addresses alone, as many as the bytes, and may exceed the GPU's memory.
  GrowingMemory(int device, int64_t bytes);
  ~GrowingMemory() override;
  GrowingMemory(const GrowingMemory&) = delete;
  GrowingMemory& operator=(const GrowingMemory&) = delete;

  std::byte* data() override { return data_; }
  int64_t bytes() const override { return bytes_; }

  // The first `bytes` may be used from now on; new ones are zero. Waits for no kernel. Fails with
  // kResource, and keeps present memory, if the GPU has too little left.
  void back(int64_t bytes);
  int64_t backed() const { return backed_; }

 private:
  const int device_;
  const int64_t bytes_;
  std::optional<CudaMemory> whole_;
  int64_t step_ = 1;      // memory comes in multiples of this size, in bytes
  int64_t reserved_ = 0;  // bytes of addresses
  int64_t backed_ = 0;
  std::vector<int64_t> pieces_;  // bytes of each piece, in order
  std::byte* data_ = nullptr;
};

}  // namespace braid::cuda
