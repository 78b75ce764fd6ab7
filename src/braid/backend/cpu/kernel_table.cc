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

KernelInfo KernelTable::find(const Program& program, const Op& op, Stream stream) const {
  for (const std::vector<ValueId>* ids : {&op.inputs, &op.outputs}) {
    for (ValueId id : *ids) {
      if (id == kNoValue || program.value(id).kind != ValueKind::computed) continue;
      const ValueType& type = program.value(id).type;
      if (type.dtype == DType::f32 || !is_float(type.dtype)) continue;
      fail(ErrorCode::kUnsupported, "{}: %{} is {}; the CPU backend computes in f32", op.def->kind,
           id, to_string(type));
    }
  }
  return at(op.def->kind)
      .info(op, program.input_types(op), program.output_types(op), threads(stream));
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
