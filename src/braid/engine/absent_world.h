#pragma once

#include <stdexcept>

#include "braid/engine/forward_plans.h"
#include "braid/engine/world.h"

namespace braid {

// Ranks that are elsewhere, or nowhere: they plan, and bind nothing. Keeps references.
class AbsentWorld : public World {
 public:
  // `gpus`: the ranks sample on the device.
  explicit AbsentWorld(const KernelCatalog& kernels, bool gpus = false)
      : kernels_(kernels), gpus_(gpus) {}

  fabric::Fabric& fabric() override { nothing(); }
  Rank& rank(int) override { nothing(); }
  bool samples_on_device() const override { return gpus_; }
  std::vector<const KernelCatalog*> catalogs(int ranks) override {
    return std::vector<const KernelCatalog*>(static_cast<size_t>(ranks), &kernels_);
  }
  std::vector<std::unique_ptr<Executor>> bind(PlannedForward planned, bool) override {
    return std::vector<std::unique_ptr<Executor>>(planned.programs.size());
  }

 private:
  [[noreturn]] static void nothing() { throw std::logic_error("absent ranks cannot run"); }
  const KernelCatalog& kernels_;
  const bool gpus_;
};

}  // namespace braid
