#include "braid/kernels/cpu/pointwise/rope.h"

#include "braid/base/error.h"
#include "braid/kernels/cpu/dispatch.h"

namespace braid::cpu {

// A unit is a head of a token.
BRAID_DECLARE_PER_ISA(void rope_units(const RopeParams& p, Range units))
// Units are q heads, then k heads, then v heads.
BRAID_DECLARE_PER_ISA(void rope_append_units(const RopeAppendParams& p, Range units))

namespace {

void check(const RopeSpec& rope) {
  BRAID_CHECK(rope.head_dim > 0 && rope.head_dim <= kMaxRopeHeadDim, "head_dim {}", rope.head_dim);
  BRAID_CHECK(rope.rot >= 0 && rope.rot % 2 == 0 && rope.rot <= rope.head_dim, "rot {}", rope.rot);
}

}  // namespace

void rope(const RopeParams& p, const Team& team, Isa isa) {
  check(p.rope);
  pick_isa(isa, BRAID_EACH_ISA(rope_units))(p, team.share(p.tokens * p.in.heads));
}

void rope_append(const RopeAppendParams& p, const Team& team, Isa isa) {
  check(p.rope);
  BRAID_CHECK(is_float(p.cache.dtype), "dtype {}", name(p.cache.dtype));
  BRAID_CHECK(p.cache.kv_heads == p.k.heads && p.cache.head_dim == p.rope.head_dim);
  pick_isa(isa, BRAID_EACH_ISA(rope_append_units))(
      p, team.share(p.tokens * (p.q.heads + 2 * p.k.heads)));
}

}  // namespace braid::cpu
