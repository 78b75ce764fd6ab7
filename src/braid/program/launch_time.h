#pragma once

namespace braid {

// When a launch ran, or would by a simulation, in seconds of one clock that all ranks share.
struct LaunchTime {
  double begin = 0;
  double end = 0;
  double seconds() const { return end - begin; }
};

}  // namespace braid
