#include "braid/parallel/topology.h"

#include <charconv>

#include "braid/base/error.h"

namespace braid {
namespace {

constexpr int kMaxDevices = 1 << 16;

}  // namespace

std::string_view to_string(LinkClass link) {
  switch (link) {
    case LinkClass::device:
      return "same device";
    case LinkClass::machine:
      return "same machine";
    case LinkClass::cluster:
      return "other machine";
  }
  return "?";
}

Topology parse_topology(std::string_view text) {
  const auto refuse = [&] {
    fail(ErrorCode::kInvalidArgument,
         "machines '{}': wanted MACHINESxDEVICES, such as 2x4, or RACKSxMACHINESxDEVICES", text);
  };
  std::vector<int> sizes;  // the outermost first
  const char *at = text.data(), *const end = at + text.size();
  while (true) {
    const auto [next, error] = std::from_chars(at, end, sizes.emplace_back());
    if (error != std::errc() || sizes.back() < 1 || sizes.size() > 3) refuse();
    if (next == end) break;
    if (*next != 'x') refuse();
    at = next + 1;
  }
  if (sizes.size() < 2) refuse();
  double all = 1;
  for (const int size : sizes) all *= size;
  if (all > kMaxDevices) {
    fail(ErrorCode::kInvalidArgument, "machines '{}': {:.0f} devices, at most {}", text, all,
         kMaxDevices);
  }
  const int racks = sizes.size() == 3 ? sizes[0] : 1;
  return {.machines = racks * sizes[sizes.size() - 2], .devices = sizes.back(), .racks = racks};
}

std::string sizes_of(const Topology& topology) {
  const int machines = topology.machines / topology.racks;
  return topology.racks > 1 ? fmt::format("{}x{}x{}", topology.racks, machines, topology.devices)
                            : fmt::format("{}x{}", machines, topology.devices);
}

std::string to_string(const Topology& topology) {
  return sizes_of(topology) + (topology.emulated ? " (emulated)" : "");
}

std::vector<int> nested_groups(const Topology& topology) {
  std::vector<int> groups;
  for (const int ranks : {topology.devices, topology.ranks_of_rack(), topology.ranks()}) {
    if (ranks > (groups.empty() ? 1 : groups.back())) groups.push_back(ranks);
  }
  return groups;
}

}  // namespace braid
