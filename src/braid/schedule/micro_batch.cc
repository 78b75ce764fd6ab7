#include "braid/schedule/micro_batch.h"

#include <algorithm>

namespace braid {

Ranges split_tokens(int64_t tokens, int n, int64_t least, int64_t multiple) {
  if (n < 1 || n > kMaxMicroBatches) {
    fail(ErrorCode::kInvalidArgument, "split_tokens: {} micro-batches, wanted 1 to {}", n,
         kMaxMicroBatches);
  }
  const int64_t units = ceil_div(tokens, multiple);
  const int64_t smallest = std::max<int64_t>(ceil_div(least, multiple), 1);
  int64_t parts = std::clamp<int64_t>(units / smallest, 1, n);
  // The last part is the smallest, and ends with the tokens, not with its units.
  while (parts > 1 && tokens - (even_part(units, parts, parts - 1).begin * multiple) < least)
    --parts;
  Ranges ranges;
  for (int64_t i = 0; i < parts; ++i) {
    const Range part = even_part(units, parts, i);
    ranges.push_back({part.begin * multiple, std::min(part.end * multiple, tokens)});
  }
  return ranges;
}

}  // namespace braid
