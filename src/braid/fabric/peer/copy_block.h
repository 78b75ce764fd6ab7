#pragma once

#include <cuda_runtime.h>

#include "braid/fabric/fabric.h"

namespace braid::fabric {

// dst = src in `stream`; either may lie on another GPU or on the host.
void copy_async(std::byte* dst, const std::byte* src, const Block& block, cudaStream_t stream);

}  // namespace braid::fabric
