#include "braid/kernels/cpu/pointwise/norm.h"

#include "braid/base/error.h"
#include "braid/kernels/cpu/dispatch.h"

namespace braid::cpu {

BRAID_DECLARE_PER_ISA(void rms_norm_rows(const RmsNormParams& p, Range rows))
BRAID_DECLARE_PER_ISA(void add_rms_norm_rows(const AddRmsNormParams& p, Range rows))

void rms_norm(const RmsNormParams& p, const Team& team, Isa isa) {
  BRAID_CHECK(p.group > 0 && p.cols % p.group == 0, "cols {} group {}", p.cols, p.group);
  pick_isa(isa, BRAID_EACH_ISA(rms_norm_rows))(p, team.share(p.rows));
}

void add_rms_norm(const AddRmsNormParams& p, const Team& team, Isa isa) {
  pick_isa(isa, BRAID_EACH_ISA(add_rms_norm_rows))(p, team.share(p.rows));
}

}  // namespace braid::cpu
