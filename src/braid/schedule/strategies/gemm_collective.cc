#include "braid/schedule/strategies/registry.h"

namespace braid {
namespace {

// A product and the sum over ranks as a single op, which sends tiles as soon as they are made.
class GemmCollective : public OpScheduler {
 public:
  std::string name() const override { return "gemm_collective"; }

  void partition(PartitionRules& rules) const override {
    rules.split_func({"linear", "all_reduce"});
  }

  void schedule(ScheduleContext& ctx) const override {
    while (!ctx.done()) {
      for (const Task& task : ctx.ready(0)) {
        const bool fuse = task.is("linear+all_reduce");
        ctx.execute({task}, {.replace = fuse ? "linear_all_reduce" : ""});
      }
    }
  }
};

}  // namespace

std::unique_ptr<OpScheduler> gemm_collective_strategy() {
  return std::make_unique<GemmCollective>();
}

}  // namespace braid
