#pragma once

namespace braid {

// Time of a launch, measured or simulated, in seconds of a clock shared by all ranks.
struct LaunchTime {
  double begin = 0;
  double end = 0;
  double seconds() const { return end - begin; }
};

}  // namespace braid
