#pragma once

namespace braid {

// What may run at the same time as a launch (schedule/beside.h).
struct Beside {
  bool computes = false;
  bool pulls = false;
  bool communicates = false;  // in another way
};

}  // namespace braid
