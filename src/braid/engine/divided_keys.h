#pragma once

#include <cstdint>

#include "braid/model/config.h"

namespace braid {

// Keys of a cache that GPUs which divide prompts may keep apart.
struct DividedKeys {
  int64_t slots = 0;        // tokens, of all sequences
  int64_t layer_bytes = 0;  // keys and values of a token in a layer, in the mean; all heads
  int ranks = 1;
};
// Layers with a window count as without keys: ranks meet there, too, and are spared little.
DividedKeys divided_keys(const ModelConfig& config, DType kv_dtype, int64_t slots, int ranks);

// Bytes of a layer's keys that a GPU may read for others before each reads its own alone. With
// keys apart a token meets the other GPUs twice in a layer, which takes as long as reading 200 MB:
// so on two H200, and by one measured time on four (docs/log/measurements.md). A cache is seldom
// full: the limit is a third more.
constexpr int64_t kReadForOthers = int64_t{256} << 20;

// Whether GPUs each keep room for their own keys alone, and queries go to the keys; else all have
// room for all keys, and rank 0 decodes alone. Memory may leave no such choice (divided_cache).
bool keys_apart(const DividedKeys& keys);

}  // namespace braid
