#pragma once

#include <functional>
#include <map>

#include "braid/backend/backend.h"
#include "braid/backend/cpu/team.h"
#include "braid/ops/kernel_catalog.h"

namespace braid::cpu {

// Operands for binding a kernel. The call and its spans outlive the bound kernel. Between runs the
// call's part changes, and with the part the data pointers of operands with a batch axis: kernels
// read these pointers through the call on each run. Weights, states and all shapes stay.
struct LaunchArgs {
  const OpCall& call;
  std::byte* workspace = nullptr;  // as many bytes as info() asked for, 64-byte aligned
  int threads = 1;                 // in the kernel's team
  Stream stream = Stream::compute;
  DeviceMemory* arena = nullptr;  // fabric::SymmetricMemory where ranks reach into each other's
  // Of an op that joins ops of several micro-batches: the parts of those behind the call's own.
  std::span<BatchPart* const> joined = {};
};

// A launch, ready to run: every thread of the team calls the function (SPMD).
using BoundKernel = std::function<void(const Team&)>;

// A kernel for a kind of op: its needs, and its binding to operands, done once.
struct Kernel {
  std::function<KernelInfo(const Op& op, TypeList in, TypeList out, int threads)> info;
  std::function<BoundKernel(const LaunchArgs& args)> bind;
};

// The CPU backend's kernels by kind of op, filled by explicit calls (kernels/cpu/register.h).
class KernelTable : public KernelCatalog {
 public:
  // `threads` run the compute stream; each other stream has a single thread.
  explicit KernelTable(int threads) : threads_(threads) {}

  int threads(Stream stream) const { return stream == Stream::compute ? threads_ : 1; }
  void add(std::string_view kind, Kernel kernel);  // replaces an earlier kernel of the kind
  const Kernel& at(std::string_view kind) const;   // fails with kUnsupported
  KernelInfo find(const Program& program, const Op& op, Stream stream,
                  const Extents& capacity) const override;

 private:
  int threads_;
  std::map<std::string, Kernel, std::less<>> kernels_;
};

// Kernels that call each op's scalar reference on thread 0: the reference when other kernels are
// tested.
void add_reference_kernel(KernelTable& table, const OpDef& def);

}  // namespace braid::cpu
