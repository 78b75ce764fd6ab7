#pragma once

#include <string>
#include <string_view>

#include "braid/base/enum_array.h"

namespace braid {

// Class of the path between two ranks; traffic is counted by class.
enum class LinkClass { device, machine, cluster };
std::string_view to_string(LinkClass link);
template <class T>
using PerLink = EnumArray<LinkClass, T, 3>;

struct Link {
  double bytes_per_second = 0;
  double latency_seconds = 0;
};

// Machines of equal size; ranks fill a machine before the next.
struct Topology {
  int machines = 1;
  int devices = 1;        // per machine
  Link machine_link;      // between a machine's devices
  Link cluster_link;      // between machines
  bool emulated = false;  // several machines made up on a host
  bool mapped = true;     // kernels store into the memory of their machine's other devices

  int ranks() const { return machines * devices; }
  int machine_of(int rank) const { return rank / devices; }
  LinkClass link(int a, int b) const {
    if (a == b) return LinkClass::device;
    return machine_of(a) == machine_of(b) ? LinkClass::machine : LinkClass::cluster;
  }
};

// "2x4": 2 machines of 4 devices; 65,536 at most. Fails with kInvalidArgument on anything else.
Topology parse_topology(std::string_view text);
std::string to_string(const Topology& topology);

}  // namespace braid
