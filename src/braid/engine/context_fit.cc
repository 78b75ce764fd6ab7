#include "braid/engine/context_fit.h"

#include <algorithm>
#include <limits>

#include "braid/base/math.h"

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

DividedCache divided_cache(std::span<const ContextRoom> gpus, const DividedKeys& keys,
                           int64_t page_size) {
  const int64_t slots = keys.slots, ranks = keys.ranks;
  DividedCache cache{.apart = keys_apart(keys)};
  for (const ContextRoom& gpu : gpus) {
    if (context_that_fits(gpu, slots, page_size) < slots) cache.apart = true;
  }
  const int64_t own = page_size * ceil_div(ceil_div(slots, page_size), cache.apart ? ranks : 1);
  int64_t room = std::numeric_limits<int64_t>::max();
  for (const ContextRoom& gpu : gpus) room = std::min(room, step_room(gpu, own) / gpu.ranks);
  cache.step_bytes = std::max<int64_t>(1, room / kArenasPerPlan);
  return cache;
}

}  // namespace braid
