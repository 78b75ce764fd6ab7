#include "braid/kernels/cpu/pointwise/layer_norm.h"

#include "braid/base/error.h"
#include "braid/kernels/cpu/dispatch.h"

namespace braid::cpu {

BRAID_DECLARE_PER_ISA(void layer_norm_rows(const LayerNormParams& p, Range rows))
BRAID_DECLARE_PER_ISA(void gated_add_rows(const GatedAddParams& p, Range rows))

void layer_norm(const LayerNormParams& p, const Team& team, Isa isa) {
  BRAID_CHECK(p.group > 0 && p.cols % p.group == 0, "cols {} group {}", p.cols, p.group);
  pick_isa(isa, BRAID_EACH_ISA(layer_norm_rows))(p, team.share(p.rows));
}

void gated_add(const GatedAddParams& p, const Team& team, Isa isa) {
  pick_isa(isa, BRAID_EACH_ISA(gated_add_rows))(p, team.share(p.rows));
}

}  // namespace braid::cpu
