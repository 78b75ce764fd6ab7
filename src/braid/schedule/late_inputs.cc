#include "braid/schedule/late_inputs.h"

#include <algorithm>

#include "braid/ops/one_sided.h"
#include "braid/ops/segment_attention.h"
#include "braid/schedule/dependencies.h"

namespace braid {
namespace {

// The stage that all that `pull` brings to `op` is of; 0 where that is not one later stage.
int stage_brought(const Op& op, const Op& pull) {
  const auto& attrs = op.attrs.as<ops::SegmentAttentionAttrs>();
  int stage = -1;
  for (size_t i = 0; i < op.inputs.size(); ++i) {
    for (size_t k = 0; k < pull.inputs.size(); ++k) {
      if (op.inputs[i] == kNoValue || op.inputs[i] != pull.inputs[k]) continue;
      if (mutates(op, i)) return 0;
      if (!mutates(pull, k)) continue;
      const int its = attrs.stage_of(i);
      if (its < 1 || (stage >= 0 && stage != its)) return 0;
      stage = its;
    }
  }
  return std::max(stage, 0);
}

}  // namespace

std::vector<int> late_launches(const Program& program, std::span<const Launch> launches,
                               const Launch& launch, std::span<const int> needs) {
  const auto op_of = [&](const Launch& of) -> const Op& {
    return program.ops[static_cast<size_t>(of.op)];
  };
  const Op& op = op_of(launch);
  if (op.def != &ops::kSegmentAttention || launch.replacement >= 0) return {};
  std::vector<int> late(static_cast<size_t>(op.attrs.as<ops::SegmentAttentionAttrs>().last_stage()),
                        -1);
  for (int need : needs) {
    const Launch& other = launches[static_cast<size_t>(need)];
    if (op_of(other).def != &ops::kPull || other.stream == launch.stream) continue;
    const int stage = stage_brought(op, op_of(other));
    if (stage == 0) continue;
    int& brings = late[static_cast<size_t>(stage) - 1];
    if (brings >= 0 && brings != need) return {};
    brings = need;
  }
  for (size_t s = 0; s < late.size(); ++s) {
    const bool follows =
        late[s] >= 0 &&
        (s == 0 || (late[s - 1] < late[s] && launches[static_cast<size_t>(late[s])].stream ==
                                                 launches[static_cast<size_t>(late[0])].stream));
    if (!follows) return {};
  }
  return late;
}

std::vector<int> before_late(std::span<const Launch> launches, std::span<const int> late) {
  std::vector<int> before;
  const auto add = [&](int launch) {
    const bool known = std::ranges::count(late, launch) + std::ranges::count(before, launch) > 0;
    if (!known) before.push_back(launch);
  };
  for (int i : late) {
    const Launch& launch = launches[static_cast<size_t>(i)];
    for (int awaited : launch.waits) add(awaited);
    for (int awaited : launch.late) add(awaited);
    for (int k = i; k-- > 0;) {
      if (launches[static_cast<size_t>(k)].stream != launch.stream) continue;
      add(k);
      break;
    }
  }
  return before;
}

std::vector<double> stage_shares(const Op& op, const Launch& launch) {
  if (launch.late.empty()) return {1};
  std::vector<double> shares = op.attrs.as<ops::SegmentAttentionAttrs>().pairs();
  shares.resize(launch.late.size() + 1);  // a rank may have no rows of the last stages
  double all = 0;
  for (double pairs : shares) all += pairs;
  if (all == 0) shares[0] = all = 1;
  for (double& share : shares) share /= all;
  return shares;
}

}  // namespace braid
