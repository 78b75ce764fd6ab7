#pragma once

#include <functional>

#include "braid/ops/kernel_catalog.h"
#include "braid/ops/segment_attention.h"

namespace braid {

// Kernels are names; calls of segment attention that fit wait for their phases inside.
class AnyPhases : public KernelCatalog {
 public:
  using Fits = std::function<bool(const ops::SegmentAttentionAttrs& attrs)>;
  explicit AnyPhases(Fits fits) : fits_(std::move(fits)) {}

  KernelInfo find(const Program&, const Op& op, Stream, const Extents&) const override {
    return {.name = std::string(op.def->kind),
            .waits_inside = op.def == &ops::kSegmentAttention &&
                            fits_(op.attrs.as<ops::SegmentAttentionAttrs>())};
  }

 private:
  const Fits fits_;
};
inline const AnyPhases any_phases{[](const auto&) { return true; }};

// As AttentionDivision::kernels.
using Kernels = std::vector<const KernelCatalog*>;

}  // namespace braid
