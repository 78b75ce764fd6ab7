#pragma once

namespace braid {

// Kinds of launches that may run beside a launch.
struct Beside {
  bool computes = false;
  bool pulls = false;
  bool communicates = false;  // in another way
};

}  // namespace braid
