#pragma once

#include <chrono>

namespace braid {

// Seconds of the steady clock: for differences within a process.
inline double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace braid
