#include "braid/tensor/shape.h"

#include <fmt/ranges.h>

namespace braid {

std::string to_string(const Shape& shape) {
  return fmt::format("[{}]", fmt::join(shape.begin(), shape.end(), ", "));
}

}  // namespace braid
