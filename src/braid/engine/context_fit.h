#pragma once

#include <cstdint>
#include <span>

#include "braid/engine/divided_keys.h"

namespace braid {

// Memory of a GPU before a job, in bytes, and the job's needs.
struct ContextRoom {
  int64_t free = 0;
  int64_t total = 0;
  int64_t weights = 0;  // for all ranks on the GPU
  int64_t token = 0;    // keys and values of a token, for all ranks on the GPU
  // Activations of a prompt's step, for all ranks on the GPU; 0: unknown, an eighth of the memory.
  int64_t step = 0;
  int ranks = 1;  // on the GPU
};

// Bytes of arenas for a planned byte of a step: on two H200 arenas took up to 1.5 times the plan,
// and a larger arena came beside the last.
inline constexpr int64_t kArenasPerPlan = 3;

// Layers of keys that copies take on each of `ranks` ranks that divide tokens: a step copies a
// layer's keys of all ranks, and the step before may still have its copy.
constexpr int64_t copied_layers(int64_t ranks) {
  return ranks > 1 ? 2 * ranks : 0;
}

// Tokens whose keys fit beside weights and activations: at most `context`, otherwise whole pages of
// `page_size`. CUDA itself gets 512 MiB, and graphs beside a known step a GiB. At least a page:
// allocation shows whether a page fits.
int64_t context_that_fits(const ContextRoom& room, int64_t context, int64_t page_size);

// Bytes for a step's activations, beside weights and the keys of `tokens`; below 0: these lack
// room.
int64_t step_room(const ContextRoom& room, int64_t tokens);

// A cache over ranks that divide prompts, on GPUs.
struct DividedCache {
  bool apart = false;      // each rank has room for its own keys alone
  int64_t step_bytes = 1;  // beside the cache, for a rank's activations as planned; at least 1
};
// For the keys of all sequences over ranks on these GPUs. A cache that context_that_fits measured,
// times the ranks, leaves at least the step that it kept free.
DividedCache divided_cache(std::span<const ContextRoom> gpus, const DividedKeys& keys,
                           int64_t page_size);

}  // namespace braid
