#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "braid/ops/fusion.h"
#include "braid/ops/launch_group.h"
#include "braid/program/program.h"
#include "braid/program/stream.h"

namespace braid {

// A backend's facts about its kernel for an op, before anything runs: pure data for the memory
// plan, the verifier and the simulator.
struct KernelInfo {
  std::string name;             // "linear.avx512_vnni"
  int64_t workspace_bytes = 0;  // scratch that lives for this launch alone
  // Waits for each phase of the op inside; false: for everything before the launch.
  bool waits_inside = false;
  // Needs units of the device (SMs), and holds its units to its end, also during waits inside.
  bool holds_units = true;
};

// A backend's kernels, as planning sees them.
class KernelCatalog {
 public:
  virtual ~KernelCatalog() = default;
  // The kernel for `op`, whose values are the program's, on `stream` for a part of the batch with
  // `capacity`. Fails with kUnsupported, naming the op and its types, if the backend has no
  // kernel.
  virtual KernelInfo find(const Program& program, const Op& op, Stream stream,
                          const Extents& capacity) const = 0;
  // Fusions for this backend alone; applied after fusions().
  virtual std::span<const Fusion> fusions() const { return {}; }
  // The Program after the backend's choices for a step as a whole. Fails with kUnsupported, giving
  // the reason, if a user wants an impossible choice.
  virtual Program rewrite(Program program) const { return program; }
  // The group that the first launches of `run` form. A group of no launches: the first launch stays
  // apart. Asked after rewrite(), when all launches have their kernels.
  virtual LaunchGroup join(const Program& /*program*/, const LaunchRun& /*run*/) const {
    return {};
  }
  // Reasons for the choices in all Programs so far, for --explain.
  virtual std::vector<std::string> explain() const { return {}; }
};

}  // namespace braid
