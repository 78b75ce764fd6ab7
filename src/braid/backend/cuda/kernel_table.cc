#include "braid/backend/cuda/kernel_table.h"

#include "braid/base/error.h"

namespace braid::cuda {

const int64_t* LaunchArgs::live(BatchAxis axis) const {
  return axis == BatchAxis::none ? nullptr : &part->count[axis];
}

void KernelTable::add(std::string_view kind, Kernel kernel) {
  kernels_.insert_or_assign(std::string(kind), std::move(kernel));
}

const Kernel& KernelTable::at(std::string_view kind) const {
  const auto it = kernels_.find(kind);
  if (it == kernels_.end()) {
    fail(ErrorCode::kUnsupported, "the CUDA backend has no kernel for the op '{}'", kind);
  }
  return it->second;
}

KernelInfo KernelTable::find(const Program& program, const Op& op, Stream,
                             const Extents& capacity) const {
  return at(op.def->kind)
      .info(op, program.input_types(op, capacity), program.output_types(op, capacity), device_);
}

}  // namespace braid::cuda
