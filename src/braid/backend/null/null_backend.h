#pragma once

#include "braid/backend/backend.h"

namespace braid {

// A device that does nothing: memory is real, kernels are names, a run returns at once. For
// planning, simulation and measuring what the engine itself costs.
class NullBackend : public Backend {
 public:
  // With `takes`, as kernels that are planned for say.
  explicit NullBackend(ops::TakesStages takes = {}) : catalog_(std::move(takes)) {}

  const KernelCatalog& catalog() const override { return catalog_; }
  std::unique_ptr<DeviceMemory> allocate(int64_t bytes) override;
  std::unique_ptr<Replay> bind(BoundStep step) override;

 private:
  class Catalog : public KernelCatalog {
   public:
    explicit Catalog(ops::TakesStages takes) : takes_(std::move(takes)) {}
    KernelInfo find(const Program&, const Op& op, Stream, const Extents&) const override {
      return {std::string(op.def->kind), 0};
    }
    bool takes_stages(const ops::SegmentAttentionAttrs& attrs, const ValueType& q) const override {
      return takes_ && takes_(attrs, q);
    }

   private:
    const ops::TakesStages takes_;
  };
  Catalog catalog_;
};

}  // namespace braid
