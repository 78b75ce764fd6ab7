#pragma once

#include <bit>
#include <cstdint>

#include "braid/program/value.h"

namespace braid::cuda {

// Whether a product of so many rows on an axis repays a search for its algorithm, which runs the
// product some 50 times. Pictures without a batch axis have equal rows in all steps. A batch's
// capacities return: eight from a power of two to the next. More rows than most steps of many
// requests have, and rows between capacities, are those of a whole prompt, whose length may never
// return.
inline bool repays_search(int64_t rows, BatchAxis axis) {
  constexpr int64_t kFewest = 1024, kMostOfBatches = 8192;
  if (rows < kFewest || (axis != BatchAxis::none && rows > kMostOfBatches)) return false;
  const auto two = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(rows)));
  return axis == BatchAxis::none || rows % (two / 16) == 0;
}

}  // namespace braid::cuda
