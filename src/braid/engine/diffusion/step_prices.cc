#include "braid/engine/diffusion/step_prices.h"

#include "braid/schedule/strategies/registry.h"

namespace braid {

StepPrices::StepPrices(const Profile& profile, const Topology& topology, const KernelCatalog* like)
    : topology_(topology), backend_(like), one_(profile, {}), all_(profile, topology) {}

std::vector<const KernelCatalog*> StepPrices::catalogs(int ranks) const {
  return std::vector(static_cast<size_t>(ranks), &backend_.catalog());
}

PlannedForward StepPrices::plan(const Program& program) const {
  return plan_network(program, {}, catalogs(1), {}, *find_strategy("sequential"));
}

PlannedForward StepPrices::plan(const Program& program, const RowParts& parts,
                                const SequenceMesh& mesh, const std::string& schedule) const {
  return plan_network(program, row_parallel(program, mesh, parts), catalogs(topology_.ranks()),
                      topology_, *find_strategy(schedule));
}

double StepPrices::seconds(const PlannedForward& planned) const {
  return network_seconds(planned, planned.programs.size() == 1 ? one_ : all_);
}

}  // namespace braid
