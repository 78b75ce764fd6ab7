#pragma once

#include <cuda_runtime.h>

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "braid/backend/backend.h"
#include "braid/backend/cuda/early_words.h"

namespace braid::cuda {

class CudaBackend;

// Transfers of other launches that a launch asks for, a word each: a push of the launch's early
// results (Wait::part), after all are written; or the pull behind a pull, so the link does not
// rest until the stream hears of the first pull's end.
class Requests {
 public:
  explicit Requests(CudaBackend& backend);

  // While the step is bound. `ready` is called by the host before each time that the launch is put
  // into a stream.
  void add(uint32_t* word, std::function<void()> ready);
  void upload() const;   // at its end
  void prepare() const;  // before the launch is issued
  // Called by the launch: lets a stream write the words; gives the words; the same for a kernel.
  void write(cudaStream_t stream) const;
  std::span<uint32_t* const> words() const { return {words_.words, words_.num_words}; }
  EarlyWords* device() const;

 private:
  EarlyWords words_;
  std::vector<std::function<void()>> ready_;
  std::unique_ptr<DeviceMemory> copy_;  // of words_, on the device
};

}  // namespace braid::cuda
