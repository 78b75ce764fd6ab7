#pragma once

#include <span>

#include "braid/parallel/topology.h"

// A rank's pulls that may be under way together: pure data.
namespace braid::cuda {

struct PulledFrom {
  int peer = 0;  // rank of the world
  LinkClass link = LinkClass::machine;
};

// Whether a pull may be under way together with its predecessor: transfers from the same peer
// follow each other, and links of other classes have other ports. Pulls from other peers keep their
// order, which never has two ranks reading through a single port.
bool shares_no_port(std::span<const PulledFrom> before, std::span<const PulledFrom> pull);

}  // namespace braid::cuda
