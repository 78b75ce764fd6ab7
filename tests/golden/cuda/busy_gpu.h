#pragma once

#include <chrono>

#include "braid/backend/cuda/handles.h"

namespace braid::golden {

// Takes all SMs of a GPU for a while: other streams' kernels wait meanwhile.
class BusyGpu {
 public:
  explicit BusyGpu(int device);
  ~BusyGpu();
  BusyGpu(const BusyGpu&) = delete;
  BusyGpu& operator=(const BusyGpu&) = delete;

  void begin(std::chrono::milliseconds time);  // any thread; returns at once

 private:
  const int device_;
  int ctas_ = 0;
  cuda::OwnedStream stream_;
};

}  // namespace braid::golden
