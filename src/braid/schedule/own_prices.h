#pragma once

#include <functional>
#include <optional>

#include "braid/program/program.h"

namespace braid {

// Seconds of a launch alone, priced by a backend in place of the profile; computation stays.
struct OwnPrice {
  double fixed = 0;              // as LaunchCost::fixed
  std::optional<double> memory;  // as LaunchCost::memory; none: the profile's
};

// A backend's prices of ops without communication; nothing for an op: the profile prices the op.
// `grouped`: the op's launch is a member of a group (LaunchGroup).
using OwnPrices =
    std::function<std::optional<OwnPrice>(const Program& program, const Op& op, bool grouped)>;

}  // namespace braid
