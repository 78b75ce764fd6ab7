// Binds route, expert_gated, expert_linear and combine.
#include "braid/kernels/cpu/bind.h"
#include "braid/kernels/cpu/register.h"
#include "braid/ops/experts.h"

namespace braid::cpu {

void add_expert_kernels(KernelTable& table, Isa) {
  add_reference_kernel(table, ops::kRoute);
  add_reference_kernel(table, ops::kExpertGated);
  add_reference_kernel(table, ops::kExpertLinear);
  add_reference_kernel(table, ops::kCombine);
}

}  // namespace braid::cpu
