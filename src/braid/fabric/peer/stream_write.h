#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace braid::fabric {

// *word = value once everything before it in `stream` is done, its writes being visible to who sees
// the value. `word` is mapped host memory or device memory.
void stream_write(cudaStream_t stream, uint64_t* word, uint64_t value);

// *word += value by a host thread of the driver, likewise.
void stream_add(cudaStream_t stream, uint64_t* word, uint64_t value);

}  // namespace braid::fabric
