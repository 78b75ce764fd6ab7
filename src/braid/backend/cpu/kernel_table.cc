#include "braid/backend/cpu/kernel_table.h"

namespace braid::cpu {

void KernelTable::add(std::string_view kind, Kernel kernel) {
  kernels_.insert_or_assign(std::string(kind), std::move(kernel));
}

const Kernel& KernelTable::at(std::string_view kind) const {
  const auto it = kernels_.find(kind);
  if (it == kernels_.end()) {
    fail(ErrorCode::kUnsupported, "the CPU backend has no kernel for the op '{}'", kind);
  }
  return it->second;
}

KernelInfo KernelTable::find(const Program& program, const Op& op, Stream stream,
                             const Extents& capacity) const {
  return at(op.def->kind)
      .info(op, program.input_types(op, capacity), program.output_types(op, capacity),
            threads(stream));
}

void add_reference_kernel(KernelTable& table, const OpDef& def) {
  const std::string name = fmt::format("{}.reference", def.kind);
  table.add(def.kind, {.info =
                           [name](const Op&, TypeList, TypeList, int) {
                             return KernelInfo{name, 0};
                           },
                       .bind =
                           [](const LaunchArgs& args) {
                             return [&call = args.call](const Team& team) {
                               if (team.index == 0) call.op->def->reference(call);
                             };
                           }});
}

}  // namespace braid::cpu
