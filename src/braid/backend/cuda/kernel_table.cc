#include "braid/backend/cuda/kernel_table.h"

#include <algorithm>

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

void KernelTable::set_join(Join join) {
  remove_join(*join.form);
  joins_.push_back(std::move(join));
}

void KernelTable::remove_join(const JoinForm& form) {
  std::erase_if(joins_, [&](const Join& join) { return join.form == &form; });
}

const Join& KernelTable::join_of(const JoinForm& form) const {
  const auto it = std::ranges::find(joins_, &form, &Join::form);
  BRAID_CHECK(it != joins_.end(), "no join of the form '{}'", form.name);
  return *it;
}

LaunchGroup KernelTable::join(const Program& program, const LaunchRun& run) const {
  for (const Join& join : joins_) {
    LaunchGroup group = join.plan(program, run);
    if (group.count > 0) return group;
  }
  return {};
}

KernelInfo KernelTable::find(const Program& program, const Op& op, Stream,
                             const Extents& capacity) const {
  return at(op.def->kind)
      .info(op, program.input_types(op, capacity), program.output_types(op, capacity), device_);
}

}  // namespace braid::cuda
