#include "braid/engine/context_fit.h"

#include <algorithm>

namespace braid {

int64_t context_that_fits(const ContextRoom& room, int64_t context, int64_t page_size) {
  const int64_t spare = room.total / 8 + (int64_t{512} << 20);
  const int64_t left = std::max<int64_t>(0, room.free - room.weights - spare);
  const int64_t pages = std::max<int64_t>(1, left / std::max<int64_t>(1, room.token * page_size));
  return std::min(context, pages * page_size);
}

}  // namespace braid
