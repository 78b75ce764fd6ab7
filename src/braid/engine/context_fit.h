#pragma once

#include <cstdint>

namespace braid {

// Memory of a GPU before a job, in bytes, and the job's needs.
struct ContextRoom {
  int64_t free = 0;
  int64_t total = 0;
  int64_t weights = 0;  // for all ranks on the GPU
  int64_t token = 0;    // keys and values of a token, for all ranks on the GPU
};

// Tokens whose keys fit beside weights and activations: at most `context`, otherwise whole pages of
// `page_size`. Activations and CUDA itself get an eighth of the memory and 512 MiB. At least a
// page: allocation shows whether a page fits.
int64_t context_that_fits(const ContextRoom& room, int64_t context, int64_t page_size);

}  // namespace braid
