#pragma once

#include <functional>
#include <map>

#include "braid/backend/backend.h"
#include "braid/backend/cuda/device.h"
#include "braid/backend/cuda/launch.h"
#include "braid/backend/cuda/launch_words.h"
#include "braid/ops/one_sided.h"

namespace braid::cuda {

// A kernel's bound operands. The call and its spans outlive the bound kernel. Data pointers of
// operands with a batch axis are read through the call at each launch, and never during a replay;
// weights, states and all shapes stay.
struct LaunchArgs {
  const OpCall& call;
  const BatchPart* part = nullptr;  // device memory: how much of each batch axis is live
  std::byte* workspace = nullptr;   // as many bytes as info() asked for, 64-byte aligned
  const DeviceInfo& device;
  Stream stream = Stream::compute;
  DeviceMemory* arena = nullptr;
  // The step is a single micro-batch: its graph finds all inputs, and all keys but the new keys,
  // written.
  bool whole_batch = true;
  bool own_rows = true;             // as of BoundOp
  Beside beside;                    // likewise
  LaunchWords* words = nullptr;     // if this launch waits inside, or asks for transfers
  LaunchWords* asked_by = nullptr;  // asks for this launch's transfers; null: this launch
  bool by_stream = false;  // streams may write and wait for words (KernelTable::streams_wait)

  // The live rows on an axis, for kernels: device memory. Null without an axis: all are live.
  const int64_t* live(BatchAxis axis) const;
  // As of LaunchWords; null: all inputs are there before the launch.
  uint32_t* phases() const { return words != nullptr ? words->phases() : nullptr; }
};

// Puts a launch's kernels into a stream: no allocation, no wait, capturable.
using BoundKernel = std::function<void(const LaunchContext& context)>;

// A kernel for a kind of op: its needs, and its binding to operands, done once, outside any
// capture.
struct Kernel {
  std::function<KernelInfo(const Op& op, TypeList in, TypeList out, const DeviceInfo& device)> info;
  std::function<BoundKernel(const LaunchArgs& args)> bind;
};

// How a GPU runs neighbouring launches as one: the choice while planning, and the kernel.
struct Join {
  const JoinForm* form = nullptr;
  // As KernelCatalog::join.
  std::function<LaunchGroup(const Program& program, const LaunchRun& run)> plan;
  // The kernel that runs in place of the group's `launches`. Fails with kUnsupported, giving the
  // reason, if operands are not as planned.
  std::function<BoundKernel(const LaunchGroup& group, std::span<const LaunchArgs> launches)> bind;
};

// A GPU's kernels by kind of op, filled by explicit calls (kernels/cuda/register.h).
class KernelTable : public KernelCatalog {
 public:
  explicit KernelTable(DeviceInfo device) : device_(std::move(device)) {}

  const DeviceInfo& device() const { return device_; }
  void add(std::string_view kind, Kernel kernel);  // replaces an earlier kernel of the kind
  const Kernel& at(std::string_view kind) const;   // fails with kUnsupported
  void set_join(Join join);                        // replaces an earlier join of the form
  void remove_join(const JoinForm& form);
  const Join& join_of(const JoinForm& form) const;
  LaunchGroup join(const Program& program, const LaunchRun& run) const override;
  // Whether streams may write words and wait for them (stream_words.h) beside other work.
  void set_streams_wait(bool wait) { streams_wait_ = wait; }
  bool streams_wait() const { return streams_wait_; }
  // Whether a pull may be under way together with the pull before it in its stream.
  using GoesAhead = std::function<bool(const ops::MoveAttrs& before, const ops::MoveAttrs& pull)>;
  void set_goes_ahead(GoesAhead goes) { goes_ahead_ = std::move(goes); }
  bool goes_ahead(const ops::MoveAttrs& before, const ops::MoveAttrs& pull) const {
    return goes_ahead_ && goes_ahead_(before, pull);
  }
  KernelInfo find(const Program& program, const Op& op, Stream stream,
                  const Extents& capacity) const override;
  std::span<const Fusion> fusions() const override { return fusions_; }
  // Beside few_token_fusions(): the patterns of later calls are tried first.
  void add_fusions(std::span<const Fusion> more) {
    fusions_.insert(fusions_.begin(), more.begin(), more.end());
  }
  // As in KernelCatalog; null: Programs stay, with nothing to explain.
  struct Rewrite {
    std::function<Program(Program program)> program;
    std::function<std::vector<std::string>()> explain;
  };
  void set_rewrite(Rewrite rewrite) { rewrite_ = std::move(rewrite); }
  Program rewrite(Program program) const override {
    return rewrite_.program ? rewrite_.program(std::move(program)) : program;
  }
  std::vector<std::string> explain() const override {
    return rewrite_.explain ? rewrite_.explain() : std::vector<std::string>();
  }

 private:
  Rewrite rewrite_;
  std::vector<Fusion> fusions_ = few_token_fusions();
  DeviceInfo device_;
  std::map<std::string, Kernel, std::less<>> kernels_;
  std::vector<Join> joins_;
  bool streams_wait_ = false;
  GoesAhead goes_ahead_;
};

}  // namespace braid::cuda
