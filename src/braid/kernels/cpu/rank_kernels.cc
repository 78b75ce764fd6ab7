#include "braid/kernels/cpu/rank_kernels.h"

#include "braid/kernels/cpu/register.h"

namespace braid::cpu {

std::string instruction_sets() {
  const CpuFeatures& f = cpu_features();
  std::string text(name(f.isa));
  if (f.avx_vnni) text += ", avx-vnni";
  if (f.avx512_vnni) text += ", avx512-vnni";
  if (f.avx512_bf16) text += ", avx512-bf16";
  if (f.amx_int8) text += ", amx-int8";
  if (f.amx_bf16) text += ", amx-bf16";
  return text;
}

void add_rank_kernels(KernelTable& table, bool one_sided) {
  add_cpu_kernels(table);
  add_comm_kernels(table, StreamComms{});
  if (one_sided) add_unbound_one_sided_kernels(table);
}

}  // namespace braid::cpu
