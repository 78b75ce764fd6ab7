#pragma once

#include "braid/backend/backend.h"

namespace braid {

// A device that does nothing: memory is real, kernels are names, a run returns at once. For
// planning, simulation and measuring the engine's own cost.
class NullBackend : public Backend {
 public:
  // Kernels wait inside as those of `like`, which outlives the backend; null: none does.
  explicit NullBackend(const KernelCatalog* like = nullptr) : catalog_(like) {}

  const KernelCatalog& catalog() const override { return catalog_; }
  std::unique_ptr<DeviceMemory> allocate(int64_t bytes) override;
  std::unique_ptr<Replay> bind(BoundStep step) override;

 private:
  class Catalog : public KernelCatalog {
   public:
    explicit Catalog(const KernelCatalog* like) : like_(like) {}
    KernelInfo find(const Program& program, const Op& op, Stream stream,
                    const Extents& capacity) const override;

   private:
    const KernelCatalog* const like_;
  };
  Catalog catalog_;
};

}  // namespace braid
