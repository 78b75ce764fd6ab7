#pragma once

#include <chrono>
#include <string>

namespace braid::cpu {

// The share that a piece of CPU work got from its wanted cores.
class CoreWatch {
 public:
  CoreWatch();
  // "other programs use the cores: ...", if `threads` that computed all the time since the
  // beginning had less than three fifths of their cores; otherwise empty.
  std::string complaint(int threads) const;

 private:
  using Clock = std::chrono::steady_clock;

  Clock::time_point start_ = Clock::now();
  double cpu_seconds_ = 0;  // of this process before
};

}  // namespace braid::cpu
