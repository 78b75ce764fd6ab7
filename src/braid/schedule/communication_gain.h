#pragma once

#include <optional>
#include <string>

namespace braid {

// A Schedule's gain out of communication's time. Seconds per step on the same machine, measured or
// simulated:
struct CommunicationGain {
  double sequential = 0;  // one launch after another
  double without = 0;     // the same, with communication ops that do nothing
  double seconds = 0;     // as scheduled

  // (sequential - seconds) / (sequential - without). 1: as fast as if communication were free;
  // 0: no faster than sequential; below 0: slower. Nothing where communication costs nothing.
  std::optional<double> share() const;
};

// "1.27x of sequential, which is 62% of what free communication would give (1.52x)".
std::string to_string(const CommunicationGain& gain);

}  // namespace braid
