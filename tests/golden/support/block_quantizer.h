#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "braid/tensor/dtype.h"

namespace braid::golden {

// f32 to any float or block dtype, the same to the bit as PyPI gguf (32-element formats) and
// tools/goldens/blocks.py (K-formats). x is a whole number of blocks.
std::vector<std::byte> quantize_blocks(DType dtype, std::span<const float> x);

}  // namespace braid::golden
