#pragma once

#include <cstdint>
#include <vector>

#include "braid/engine/diffusion/network.h"

namespace braid {

// The modulation that a Program has computed for n rows, one output for each block and norm: side
// by side, [n, columns]. Throws std::logic_error on other widths.
std::vector<float> joined_modulation(BoundNetwork& network, int64_t n, int64_t columns);

}  // namespace braid
