#include "braid/engine/diffusion/modulation.h"

#include <algorithm>

namespace braid {

std::vector<float> joined_modulation(BoundNetwork& network, int64_t n, int64_t columns) {
  std::vector<float> joined(static_cast<size_t>(n * columns));
  int64_t column = 0;
  for (size_t i = 0; i < network.outputs(); ++i) {
    const std::span<const float> part = network.output(i);
    const int64_t width = std::ssize(part) / n;
    BRAID_CHECK(column + width <= columns, "more than {} columns of modulation", columns);
    for (int64_t r = 0; r < n; ++r) {
      std::ranges::copy(part.subspan(static_cast<size_t>(r * width), static_cast<size_t>(width)),
                        joined.begin() + (r * columns) + column);
    }
    column += width;
  }
  BRAID_CHECK(column == columns, "{} columns of modulation, wanted {}", column, columns);
  return joined;
}

}  // namespace braid
