#include "braid/parallel/lowering.h"

#include "braid/parallel/lower_divided.h"

namespace braid {

std::vector<RankProgram> lower(const Program& program, const LayoutPlan& plan,
                               const std::vector<const KernelCatalog*>& kernels) {
  return lower_divided(program, plan, {.kernels = kernels});
}

}  // namespace braid
