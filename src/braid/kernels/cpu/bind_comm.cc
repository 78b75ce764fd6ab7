// Binds the communication ops to the collectives of fabric/.
#include "braid/fabric/collectives/all_gather.h"
#include "braid/fabric/collectives/all_reduce.h"
#include "braid/kernels/cpu/register.h"
#include "braid/ops/comm.h"

namespace braid::cpu {
namespace {

BoundKernel bind_all_reduce(const LaunchArgs& args, fabric::Comm& comm) {
  const OpCall& call = args.call;
  return [&call, &comm](const Team& team) {
    fabric::all_reduce(comm, team, call.in[0].as<const float>(), call.out[0].as<float>(),
                       call.rows() * call.in[0].cols());
  };
}

BoundKernel bind_all_gather(const LaunchArgs& args, fabric::Comm& comm) {
  const OpCall& call = args.call;
  const auto& attrs = call.attrs<ops::CommAttrs>();
  BRAID_CHECK(attrs.dim == 1, "the CPU backend gathers columns, not dimension {}", attrs.dim);
  std::vector<int64_t> widths;
  for (const Range& part : attrs.parts) widths.push_back(part.size() * sizeof(float));
  return [&call, &comm, widths](const Team& team) {
    fabric::all_gather_columns(comm, team, call.in[0].data, call.out[0].data, call.rows(), widths);
  };
}

}  // namespace

void add_comm_kernels(KernelTable& table, fabric::Comm& comm) {
  const auto add_kernel = [&](const OpDef& def,
                              BoundKernel (*bind)(const LaunchArgs&, fabric::Comm&)) {
    const std::string kernel_name = fmt::format("{}.fabric", def.kind);
    table.add(def.kind, {.info =
                             [=](const Op&, TypeList, TypeList, int) {
                               return KernelInfo{kernel_name, 0};
                             },
                         .bind = [=, &comm](const LaunchArgs& args) { return bind(args, comm); }});
  };
  add_kernel(ops::kAllReduce, bind_all_reduce);
  add_kernel(ops::kAllGather, bind_all_gather);
}

}  // namespace braid::cpu
