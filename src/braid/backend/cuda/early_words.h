#pragma once

#include <cstdint>

namespace braid::cuda {

// In device memory, for a kernel that tells of early results: after writing all early results the
// kernel stores 1, released at system scope, into each word.
struct EarlyWords {
  static constexpr int kMaxWords = 32;  // a lane each
  uint32_t count = 0;                   // the kernel's, 0 between its calls
  uint32_t num_words = 0;
  uint32_t* words[kMaxWords] = {};  // device memory or pinned
};

}  // namespace braid::cuda
