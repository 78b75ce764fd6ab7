#pragma once

#include <cuda_runtime.h>

#include <functional>
#include <memory>
#include <vector>

#include "braid/backend/backend.h"
#include "braid/backend/cuda/early_words.h"

namespace braid::cuda {

class CudaBackend;

// Who wants to hear of a launch's early results (BoundOp::early), by a word of their own, which may
// be what sends them: so nothing stands in a stream and waits for a part of a launch.
class EarlyResults {
 public:
  explicit EarlyResults(CudaBackend& backend);

  // While the step is bound. `ready` is called by the host before each time that the launch is put
  // into a stream.
  void add(uint32_t* word, std::function<void()> ready);
  void upload() const;  // at its end
  // By the launch: before it is issued; where it is one that tells nobody, in its place.
  void prepare() const;
  void tell(cudaStream_t stream) const;
  EarlyWords* device() const;

 private:
  EarlyWords words_;
  std::vector<std::function<void()>> ready_;
  std::unique_ptr<DeviceMemory> copy_;  // of words_, on the device
};

}  // namespace braid::cuda
