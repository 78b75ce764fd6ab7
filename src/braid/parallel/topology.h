#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "braid/base/enum_array.h"

namespace braid {

// Class of the path between two ranks; traffic is counted by class. Machines of other racks are
// `cluster` too.
enum class LinkClass { device, machine, cluster };
std::string_view to_string(LinkClass link);
template <class T>
using PerLink = EnumArray<LinkClass, T, 3>;

struct Link {
  double bytes_per_second = 0;
  double latency_seconds = 0;
};

// Machines of equal size in racks of equal size; ranks fill a machine before the next, and machines
// a rack.
struct Topology {
  int machines = 1;       // in all racks
  int devices = 1;        // per machine
  int racks = 1;          // divide the machines
  Link machine_link;      // between a machine's devices
  Link cluster_link;      // between machines
  bool emulated = false;  // several machines made up on a host
  bool mapped = true;     // kernels store into the memory of their machine's other devices

  int ranks() const { return machines * devices; }
  int machine_of(int rank) const { return rank / devices; }
  int ranks_of_rack() const { return machines / racks * devices; }
  int rack_of(int rank) const { return rank / ranks_of_rack(); }
  LinkClass link(int a, int b) const {
    if (a == b) return LinkClass::device;
    return machine_of(a) == machine_of(b) ? LinkClass::machine : LinkClass::cluster;
  }
};

// "2x4": 2 machines of 4 devices; "2x3x4": 2 racks of 3 machines of 4 devices. At most 65,536
// devices; fails with kInvalidArgument on anything else.
Topology parse_topology(std::string_view text);
// The same text back.
std::string sizes_of(const Topology& topology);
std::string to_string(const Topology& topology);  // and whether links are emulated
// Ranks of a machine, of a rack and of all, without levels that add nothing to the one before.
std::vector<int> nested_groups(const Topology& topology);

}  // namespace braid
