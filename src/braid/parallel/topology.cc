#include "braid/parallel/topology.h"

#include <charconv>

#include "braid/base/error.h"

namespace braid {
namespace {

constexpr int64_t kMaxDevices = 1 << 16;

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
  Topology topology;
  const char* end = text.data() + text.size();
  const auto machines = std::from_chars(text.data(), end, topology.machines);
  const bool has_x = machines.ec == std::errc() && machines.ptr != end && *machines.ptr == 'x';
  const auto devices = std::from_chars(has_x ? machines.ptr + 1 : end, end, topology.devices);
  if (!has_x || devices.ec != std::errc() || devices.ptr != end || topology.machines < 1 ||
      topology.devices < 1) {
    fail(ErrorCode::kInvalidArgument, "machines '{}': wanted MACHINESxDEVICES, such as 2x4", text);
  }
  const int64_t all = int64_t{topology.machines} * topology.devices;
  if (all > kMaxDevices) {
    fail(ErrorCode::kInvalidArgument, "machines '{}': {} devices, at most {}", text, all,
         kMaxDevices);
  }
  return topology;
}

std::string to_string(const Topology& topology) {
  return fmt::format("{}x{}{}", topology.machines, topology.devices,
                     topology.emulated ? " (emulated)" : "");
}

}  // namespace braid
