#pragma once

#include <string>
#include <vector>

#include "braid/backend/null/null_backend.h"
#include "braid/engine/diffusion/step_choice.h"

namespace braid {

// Inputs with rows that ranks divide, as in row_parallel.
using RowParts = std::vector<std::vector<std::string>>;

// Plans and simulated times of a network's steps on a topology's ranks, which need not exist.
class StepPrices {
 public:
  // Kernels wait inside like those of `like`, which outlives this object (null: none does).
  StepPrices(const Profile& profile, const Topology& topology, const KernelCatalog* like);

  const Topology& topology() const { return topology_; }
  // A rank alone, by the strategy "sequential".
  PlannedForward plan(const Program& program) const;
  // All ranks; `schedule` is a strategy's name.
  PlannedForward plan(const Program& program, const RowParts& parts, const SequenceMesh& mesh,
                      const std::string& schedule) const;
  // Of either kind of plan.
  double seconds(const PlannedForward& planned) const;

 private:
  std::vector<const KernelCatalog*> catalogs(int ranks) const;

  const Topology topology_;
  const NullBackend backend_;
  const CostModel one_, all_;
};

}  // namespace braid
