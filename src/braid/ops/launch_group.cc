#include "braid/ops/launch_group.h"

#include <algorithm>

#include "braid/ops/attention.h"
#include "braid/ops/fused_comm.h"
#include "braid/ops/linear.h"
#include "braid/ops/norm_linear.h"
#include "braid/ops/rope_append.h"

namespace braid {
namespace {

constexpr const OpDef* kRelayOps[] = {&ops::kNormLinear,  &ops::kLinear,
                                      &ops::kGatedLinear, &ops::kRopeAppend,
                                      &ops::kAttention,   &ops::kAllReduceAddRmsNorm};

}  // namespace

constinit const JoinForm kRelay = {.name = "relay", .ops = kRelayOps};

bool JoinForm::takes(const Op& op) const {
  return std::ranges::find(ops, op.def) != ops.end();
}

}  // namespace braid
