#pragma once

#include <cstddef>

namespace braid::cuda {

// Parts of a prompt whose keys a GPU scores and thins by itself: two for each of the levels' ranks.
constexpr size_t kMostThinnedParts = 32;

}  // namespace braid::cuda
