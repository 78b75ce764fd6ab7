#pragma once

#include <string>

#include "braid/program/program.h"

namespace braid::ops {

// The mesh axis that an op communicates over, and the axis' ranks.
struct AxisRanks {
  const std::string& axis;
  int ranks;
};

// Of an op of ops/comm.h or ops/fused_comm.h, which outlives the result.
AxisRanks axis_of(const Op& op);

}  // namespace braid::ops
