#include "braid/engine/requests/host_step_queue.h"

#include "braid/base/clock.h"

namespace braid {

void HostStepQueue::put(const Batch& batch, std::span<const int32_t> /*row_slots*/) {
  const double begin = steady_seconds();
  runner_.step(batch);
  seconds_ = steady_seconds() - begin;
}

}  // namespace braid
