#pragma once

namespace braid {

// Kinds of launches that a Schedule lets run at the same time as another.
struct Beside {
  bool computes = false;
  bool pulls = false;
  bool communicates = false;  // in another way
};

}  // namespace braid
