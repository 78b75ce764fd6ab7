#include "braid/kernels/cpu/pointwise/largest.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "braid/kernels/cpu/dispatch.h"

namespace braid::cpu {

// The largest of x [n] that is no NaN. `odd`, 0 before, becomes NaN where an x is NaN or +inf.
BRAID_DECLARE_PER_ISA(float largest_of_block(const float* x, int64_t n, float& odd))

Largest largest(const float* x, int64_t n, Isa isa) {
  using BlockFn = float (*)(const float* x, int64_t n, float& odd);
  constexpr int64_t kBlock = 2048;  // where the largest stands is looked for in a single block
  const auto of_block = pick_isa<BlockFn>(isa, BRAID_EACH_ISA(largest_of_block));
  Largest found{.value = -std::numeric_limits<float>::infinity()};
  float odd = 0;
  int64_t begin = 0;
  for (int64_t i = 0; i < n; i += kBlock) {
    const float top = of_block(x + i, std::min(kBlock, n - i), odd);
    if (!(top > found.value)) continue;
    found.value = top;
    found.at = begin = i;
  }
  found.numbers = !std::isnan(odd);
  if (found.at >= 0) found.at = std::find(x + begin, x + n, found.value) - x;
  return found;
}

}  // namespace braid::cpu
