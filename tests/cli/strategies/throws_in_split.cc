#include <stdexcept>

#include "braid/schedule/op_scheduler.h"

class ThrowsInSplit : public braid::OpScheduler {
 public:
  std::string name() const override { return "throws_in_split"; }
  void partition(braid::PartitionRules&) const override {}
  braid::Ranges split(const braid::BatchInfo&) const override {
    throw std::runtime_error("no idea how");
  }
  void schedule(braid::ScheduleContext&) const override {}
};
BRAID_STRATEGY(ThrowsInSplit)
