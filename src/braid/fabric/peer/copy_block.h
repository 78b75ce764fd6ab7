#pragma once

#include <cuda_runtime.h>

#include "braid/fabric/fabric.h"

namespace braid::fabric {

// dst = src in `stream`, of which either may be another GPU's or the host's.
void copy_async(std::byte* dst, const std::byte* src, const Block& block, cudaStream_t stream);

}  // namespace braid::fabric
