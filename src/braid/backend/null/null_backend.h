#pragma once

#include "braid/backend/backend.h"

namespace braid {

// A device that does nothing: memory is real, kernels are names, a run returns at once. For
// planning, simulation and measuring what the engine itself costs.
class NullBackend : public Backend {
 public:
  const KernelCatalog& catalog() const override { return catalog_; }
  std::unique_ptr<DeviceMemory> allocate(int64_t bytes) override;
  std::unique_ptr<Replay> bind(BoundStep step) override;

 private:
  class Catalog : public KernelCatalog {
   public:
    KernelInfo find(const Program&, const Op& op, Stream, const Extents&) const override {
      return {std::string(op.def->kind), 0};
    }
  };
  Catalog catalog_;
};

}  // namespace braid
