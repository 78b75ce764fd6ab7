#pragma once

#include <cstddef>

#include "braid/backend/cuda/launch.h"

namespace braid::cuda {

// Only reads device memory, a multiple of 16 bytes, 16-byte aligned: the roof for memory-bound
// work. `sink` is 4 bytes in device memory. A single kernel; capturable.
void read_stream(const void* data, size_t bytes, void* sink, int num_sms,
                 const LaunchContext& context);

}  // namespace braid::cuda
