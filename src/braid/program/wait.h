#pragma once

namespace braid {

// The last part of a launch's results: present when the launch has ended. Parts 0, 1, ... before
// the last are present earlier, in this order, while the launch may still run (PhaseTraits).
constexpr int kLastPart = -1;

// A launch waits for an earlier launch on its rank: `phase` of the waiting launch begins after the
// other launch's results are present up to `part`. Phase 0 is the begin of the waiting launch; a
// wait of a later phase is a wait inside the launch.
struct Wait {
  int launch = 0;
  int phase = 0;
  int part = kLastPart;
  bool inside() const { return phase > 0; }
  bool partial() const { return part != kLastPart; }
  bool operator==(const Wait&) const = default;
};

}  // namespace braid
