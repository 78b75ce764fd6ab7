#include "braid/engine/cuda/wait_for_device.h"

#include <chrono>
#include <thread>

#include "braid/base/error.h"

namespace braid::cuda {

void wait_for_device(CudaBackend& backend, const std::function<bool()>& done, const char* what) {
  using Clock = std::chrono::steady_clock;
  const auto begin = Clock::now();
  for (int64_t spins = 0; !done(); ++spins) {
    if (spins < 1000) continue;
    std::this_thread::yield();
    if (spins % 4096 != 0) continue;
    backend.check();
    if (Clock::now() - begin > kDeviceDeadline) {
      fail(ErrorCode::kDeadline, "cuda:{}: {} did not come within {} s", backend.device().id, what,
           kDeviceDeadline.count());
    }
  }
}

}  // namespace braid::cuda
