#pragma once

#include <span>
#include <string>
#include <string_view>

#include "braid/program/op.h"
#include "braid/program/stream.h"

namespace braid {

// A way to run neighbouring launches as one.
struct JoinForm {
  std::string_view name;
  std::span<const OpDef* const> ops;  // definitions that a member may have
  bool takes(const Op& op) const;
};

// The layers and the head of a decode step with a single token.
extern const JoinForm kRelay;

// Launches [first, first + count) of a Schedule, which a backend runs as one.
struct LaunchGroup {
  int first = 0;
  int count = 0;
  const JoinForm* form = nullptr;
  std::string kernel;  // "relay 132 x 24 slots, heads of 1 x 128"
  int end() const { return first + count; }
};

// Neighbouring launches of a stream, in a step of a single micro-batch, while no other stream runs.
// Only the first launch may wait for another stream, and other streams only for the last launch.
struct LaunchRun {
  std::span<const Op* const> ops;
  Stream stream = Stream::compute;
  bool ranks_alike = false;  // the other ranks' operands surely have this rank's shapes
};

}  // namespace braid
