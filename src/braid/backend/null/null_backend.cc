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

KernelInfo NullBackend::Catalog::find(const Program& program, const Op& op, Stream stream,
                                      const Extents& capacity) const {
  KernelInfo info{.name = std::string(op.def->kind),
                  .holds_units = op.def->remote != RemoteUse::pulls};
  if (op.def->phases != nullptr && like_ != nullptr) {
    info.waits_inside = like_->find(program, op, stream, capacity).waits_inside;
  }
  return info;
}

std::unique_ptr<DeviceMemory> NullBackend::allocate(int64_t bytes) {
  return std::make_unique<HostMemory>(bytes);
}

std::unique_ptr<Replay> NullBackend::bind(BoundStep) {
  return std::make_unique<NullReplay>();
}

}  // namespace braid
