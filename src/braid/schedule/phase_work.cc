#include "braid/schedule/phase_work.h"

namespace braid {

PhaseWork phase_work(const Op& op, const Launch& launch) {
  PhaseWork work;
  if (launch.last_phase() == 0) return work;
  const PhaseTraits& phases = *op.def->phases;
  const auto count = static_cast<size_t>(launch.last_phase()) + 1;
  work.rest = phases.work(op.attrs, false);
  work.rest.resize(count);  // a rank may have no rows of the last phases
  double all = 0;
  for (double part : work.rest) all += part;
  if (all == 0) work.rest[0] = all = 1;
  if (phases.has_early(op.attrs)) {
    work.early = phases.work(op.attrs, true);
    work.early.resize(count);
  }
  for (size_t n = 0; n < count; ++n) {
    if (!work.early.empty()) work.rest[n] -= work.early[n];
    if (!work.early.empty()) work.early[n] /= all;
    work.rest[n] /= all;
  }
  return work;
}

}  // namespace braid
