#include "braid/backend/null/null_backend.h"

#include <algorithm>

#include "braid/backend/host_memory.h"

namespace braid {
namespace {

class NullReplay : public Replay {
 public:
  void run(std::span<LaunchTime> times) override { std::ranges::fill(times, LaunchTime{}); }
};

}  // namespace

std::unique_ptr<DeviceMemory> NullBackend::allocate(int64_t bytes) {
  return std::make_unique<HostMemory>(bytes);
}

std::unique_ptr<Replay> NullBackend::bind(BoundStep) {
  return std::make_unique<NullReplay>();
}

}  // namespace braid
