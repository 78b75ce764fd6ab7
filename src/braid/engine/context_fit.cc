#include "braid/engine/context_fit.h"

#include <algorithm>

namespace braid {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;
constexpr int64_t kCudaBytes = 512 * kMiB;
constexpr int64_t kGraphBytes = 1024 * kMiB;  // as ForwardCache has

}  // namespace

int64_t context_that_fits(const ContextRoom& room, int64_t context, int64_t page_size) {
  const int64_t spare = kCudaBytes + (room.step > 0 ? kGraphBytes + room.step : room.total / 8);
  const int64_t left = std::max<int64_t>(0, room.free - room.weights - spare);
  const int64_t pages = std::max<int64_t>(1, left / std::max<int64_t>(1, room.token * page_size));
  return std::min(context, pages * page_size);
}

int64_t step_room(const ContextRoom& room, int64_t tokens) {
  return room.free - room.weights - kCudaBytes - kGraphBytes - room.token * tokens;
}

}  // namespace braid
