#include "braid/engine/divided_keys.h"

#include <algorithm>

namespace braid {

DividedKeys divided_keys(const ModelConfig& config, DType kv_dtype, int64_t slots, int ranks) {
  const int64_t whole = config.layers - std::ranges::count_if(config.windows, [](int64_t window) {
                          return window > 0;
                        });
  const int64_t bytes = bytes_of(kv_dtype, config.cached_numbers());
  return {.slots = slots,
          .layer_bytes = bytes * whole / std::max<int64_t>(1, config.layers),
          .ranks = ranks};
}

bool keys_apart(const DividedKeys& keys) {
  return keys.slots * keys.layer_bytes * (keys.ranks - 1) > kReadForOthers * keys.ranks;
}

}  // namespace braid
