#pragma once

#include <atomic>
#include <chrono>
#include <thread>

#include "braid/base/error.h"
#include "braid/fabric/local/local_fabric.h"

namespace braid::fabric {

// Until every rank has come. Processes pass an error on to each other, so the error may overtake
// the answer that ends the making of a rank's fabric: that rank would end before its first wait.
inline void await_all(const Endpoint& e, const std::atomic<int>& come) {
  const auto end = std::chrono::steady_clock::now() + LocalFabricConfig().deadline;
  while (come < e.world_size()) {
    e.check();
    if (std::chrono::steady_clock::now() > end) {
      fail(ErrorCode::kDeadline, "{} of {} ranks have come", come.load(), e.world_size());
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

}  // namespace braid::fabric
