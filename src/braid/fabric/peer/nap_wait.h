#pragma once

#include <algorithm>
#include <chrono>
#include <thread>

#include "braid/base/error.h"
#include "braid/fabric/fabric.h"
#include "braid/fabric/job_error.h"

namespace braid::fabric {

// A host's wait of `rank` until ready(), for a word or an event of a GPU, which ring no bell: looks
// often at first, then sleeps between looks. Throws kAborted soon after the job has failed, or
// kDeadline; describe() names the awaited thing.
template <class Ready, class Describe>
void nap_wait(const JobError& error, int rank, Duration deadline, Ready&& ready,
              Describe&& describe) {
  constexpr Duration kLongest = std::chrono::hours(24);
  constexpr std::chrono::microseconds kSpin{200};
  constexpr std::chrono::microseconds kNap{20};
  deadline = std::min(deadline, kLongest);
  const std::chrono::steady_clock::time_point start = std::chrono::steady_clock::now();
  while (!ready()) {
    const auto waited = std::chrono::steady_clock::now() - start;
    if (error.is_set()) {
      if (ready()) return;
      error.throw_aborted(rank, fmt::format("wait for {},", describe()));
    }
    if (waited >= deadline) {
      if (ready()) return;
      fail(ErrorCode::kDeadline, "rank {}: waited {:.3g} s for {}", rank,
           std::chrono::duration<double>(deadline).count(), describe());
    }
    if (waited < kSpin) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(kNap);
    }
  }
}

}  // namespace braid::fabric
