#pragma once

#include <cstdint>

namespace braid {

// Results of an awaited launch that must be present.
enum class Results : uint8_t {
  all,    // the launch has ended
  early,  // the launch has made its early results (PhaseTraits), and may still run
};

// A launch waits for an earlier launch on its rank: `phase` of the waiting launch begins after the
// other launch's `results` are present. Phase 0 is the begin of the waiting launch; a wait of a
// later phase is a wait inside the launch.
struct Wait {
  int launch = 0;
  int phase = 0;
  Results results = Results::all;
  bool inside() const { return phase > 0; }
  bool operator==(const Wait&) const = default;
};

}  // namespace braid
