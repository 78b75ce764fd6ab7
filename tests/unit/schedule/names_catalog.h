#pragma once

#include <string>

#include "braid/ops/kernel_catalog.h"

namespace braid {

// Kernels are names.
class NamesCatalog : public KernelCatalog {
 public:
  KernelInfo find(const Program&, const Op& op, Stream, const Extents&) const override {
    return {std::string(op.def->kind), 0};
  }
};

}  // namespace braid
