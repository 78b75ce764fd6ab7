#pragma once

#include <cstdint>

namespace braid {

// Memory of a GPU before anything of a job lies there, in bytes, and what a job puts there.
struct ContextRoom {
  int64_t free = 0;
  int64_t total = 0;
  int64_t weights = 0;  // of all ranks on it
  int64_t token = 0;    // keys and values of one token, of all ranks on it
};

// Tokens whose keys fit beside weights and activations: at most `context`, whole pages of
// `page_size` where less. Activations and CUDA itself are given an eighth of the memory and 512
// MiB. At least a page: whether that is there, allocation says.
int64_t context_that_fits(const ContextRoom& room, int64_t context, int64_t page_size);

}  // namespace braid
