#include "braid/schedule/strategies/registry.h"

namespace braid {
namespace {

class Sequential : public OpScheduler {
 public:
  std::string name() const override { return "sequential"; }
  void partition(PartitionRules&) const override {}
  void schedule(ScheduleContext& ctx) const override { ctx.execute(ctx.ready(0)); }
};

}  // namespace

std::unique_ptr<OpScheduler> sequential_strategy() {
  return std::make_unique<Sequential>();
}

}  // namespace braid
