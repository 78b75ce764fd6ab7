#pragma once

#include "braid/engine/requests/step_queue.h"
#include "braid/engine/runner.h"

namespace braid {

// Runs a single step at a time. Its logits come to the host, which chooses all tokens.
class HostStepQueue : public StepQueue {
 public:
  explicit HostStepQueue(Runner& runner) : runner_(runner) {}

  int depth() const override { return 1; }
  int64_t slots() const override { return 0; }
  bool join(int32_t, const SlotSequence&) override { return false; }
  void leave(int32_t) override {}
  void allow(int32_t, std::span<const uint32_t>) override {}
  void put(const Batch& batch, std::span<const int32_t> row_slots) override;
  bool usable() const override { return runner_.usable(); }
  std::optional<Approximation> approximation() const override { return runner_.approximation(); }
  std::optional<Approximation> last_approximation() const override {
    return runner_.last_approximation();
  }
  EndedStep take() override { return {.seconds = seconds_, .waited = seconds_}; }
  TensorView logits() override { return runner_.logits(); }
  TensorView device_logits() override { return runner_.device_logits(); }

 private:
  Runner& runner_;
  double seconds_ = 0;  // of the last step
};

}  // namespace braid
