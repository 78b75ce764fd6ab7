#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "braid/ops/fusion.h"
#include "braid/program/program.h"
#include "braid/program/stream.h"

namespace braid {

// What a backend says of the kernel that it would use for an op, before anything runs: pure data
// for the memory plan, the verifier and the simulator.
struct KernelInfo {
  std::string name;             // "linear.avx512_vnni"
  int64_t workspace_bytes = 0;  // scratch that lives for this launch alone
  // Waits for a phase of the op when the kernel comes to it; false: for all before the launch.
  bool waits_inside = false;
  // Needs units of the device (SMs), and holds them to its end, also while it waits inside.
  bool holds_units = true;
};

// The kernels of one backend, as planning sees them.
class KernelCatalog {
 public:
  virtual ~KernelCatalog() = default;
  // The kernel that would run `op`, whose values are the program's, on `stream` for a part of the
  // batch of `capacity`. Fails with kUnsupported, naming the op and its types, when the backend has
  // none.
  virtual KernelInfo find(const Program& program, const Op& op, Stream stream,
                          const Extents& capacity) const = 0;
  // KernelInfo::waits_inside of the kernel that would run `op`, before there is a Program with it.
  virtual bool waits_inside(const Op&, TypeList /*in*/) const { return false; }
  // What gains on this backend alone; applied after fusions().
  virtual std::span<const Fusion> fusions() const { return {}; }
  // The Program as it runs, after these: what the backend chooses for a step as a whole. Fails with
  // kUnsupported, giving the reason, where a user wants what is not possible.
  virtual Program rewrite(Program program) const { return program; }
  // Why it chose so, for --explain: of all Programs so far.
  virtual std::vector<std::string> explain() const { return {}; }
};

}  // namespace braid
