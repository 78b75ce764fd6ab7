#include "braid/schedule/phase_work.h"

namespace braid {

PhaseWork phase_work(const Op& op, const Launch& launch) {
  if (launch.last_phase() == 0) return {};
  const PhaseTraits& phases = *op.def->phases;
  const int parts = phases.parts(op.attrs);
  PhaseWork work;
  double all = 0;
  for (int part = 0; part <= parts; ++part) {
    work.push_back(phases.work(op.attrs, part < parts ? part : kLastPart));
    work.back().resize(launch.last_phase() + 1);  // a rank may have no rows of the last phases
    for (double amount : work.back()) all += amount;
  }
  if (all == 0) work.back()[0] = all = 1;
  for (std::vector<double>& part : work) {
    for (double& amount : part) amount /= all;
  }
  return work;
}

}  // namespace braid
