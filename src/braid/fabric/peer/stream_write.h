#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace braid::fabric {

// *word = value after everything ahead in `stream`; earlier writes are visible to readers of the
// value. `word` is mapped host memory or device memory.
void stream_write(cudaStream_t stream, uint64_t* word, uint64_t value);

// *word += value by a host thread of the driver, likewise.
void stream_add(cudaStream_t stream, uint64_t* word, uint64_t value);

}  // namespace braid::fabric
