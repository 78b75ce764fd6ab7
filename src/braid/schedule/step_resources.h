#pragma once

#include <algorithm>

#include "braid/schedule/cost_model.h"

namespace braid {

// What launches of a step share, by index for FairShare: units and memory of each rank's device,
// and its ports, each direction separately. Ranks that share one have its index in common.
class StepResources {
 public:
  enum Kind {
    kUnits,
    kMemory,
    kMachineOut,
    kMachineIn,
    kClusterOut,
    kClusterIn,
    kRackOut,
    kRackIn,
    kKinds
  };

  explicit StepResources(const CostModel& model) : ranks_(model.topology().ranks()) {
    const int machine = model.topology().devices, rack = model.topology().ranks_of_rack();
    std::fill(sharers_, sharers_ + kKinds, 1);
    const auto share = [&](bool shared, Kind one, Kind other, int ranks) {
      if (shared) sharers_[one] = sharers_[other] = ranks;
    };
    const LinkProfile* const uplink = model.rack_link();
    share(model.profile().shared_units, kUnits, kMemory, machine);
    share(model.cluster_link().shared_port, kClusterOut, kClusterIn, machine);
    share(uplink != nullptr && uplink->shared_port, kRackOut, kRackIn, rack);
  }

  int count() const { return ranks_ * kKinds; }
  int index(int rank, Kind kind) const {
    return rank / sharers_[kind] * sharers_[kind] * kKinds + kind;
  }
  // Neighbours with one in common, of a group of `ranks` ranks.
  int sharers(Kind kind, int ranks) const { return std::min(ranks, sharers_[kind]); }

 private:
  const int ranks_;
  int sharers_[kKinds];  // ranks with one in common
};

}  // namespace braid
