#include <unistd.h>

#include <csignal>
#include <cstdlib>

#include "braid/schedule/op_scheduler.h"

// In a process that has BRAID_TEST_ENDS: ends it before the step of that number, by the signal
// BRAID_TEST_SIGNAL, or without one by exit(7).
class EndsItsProcess : public braid::OpScheduler {
 public:
  std::string name() const override { return "ends_its_process"; }
  void partition(braid::PartitionRules&) const override {}
  void schedule(braid::ScheduleContext& ctx) const override { ctx.execute(ctx.ready(0)); }
  braid::Ranges split(const braid::BatchInfo& batch) const override {
    const char* const at = std::getenv("BRAID_TEST_ENDS");
    if (at && ++steps_ == std::atoi(at)) {
      const char* const signal = std::getenv("BRAID_TEST_SIGNAL");
      if (!signal) std::_Exit(7);
      kill(getpid(), std::atoi(signal));
      sleep(1);  // until it is heard
    }
    return braid::OpScheduler::split(batch);
  }

 private:
  mutable int steps_ = 0;
};
BRAID_STRATEGY(EndsItsProcess)
