#pragma once

#include <span>

#include "braid/parallel/topology.h"

// Which pulls of a rank may be under way together: pure data.
namespace braid::cuda {

struct PulledFrom {
  int peer = 0;  // rank of the world
  LinkClass link = LinkClass::machine;
};

// Whether a pull may be under way with the one before it: transfers of one peer follow each other,
// and links of other classes have other ports. Pulls of other peers keep to their order, in which
// no two ranks read through one port at a time.
bool shares_no_port(std::span<const PulledFrom> before, std::span<const PulledFrom> pull);

}  // namespace braid::cuda
