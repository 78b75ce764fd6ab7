#include "braid/schedule/launch_price.h"

namespace braid {

Work work_of(const Launch& launch, std::span<const Work> works) {
  Work sum;
  for (int mb = launch.micro_batch; mb < launch.micro_batch_end(); ++mb) {
    const Work& work = works[mb];
    sum.extents += work.extents;
    sum.attended += work.attended;
    sum.kv_tokens += work.kv_tokens;
  }
  return sum;
}

LaunchCost price(const CostModel& model, const Program& program, const Schedule& schedule,
                 const Launch& launch, std::span<const Work> works, int rank) {
  if (launch.joined.empty()) {
    return model.price(program, schedule.op(program, launch), work_of(launch, works), launch.stream,
                       rank);
  }
  LaunchCost all;
  launch.for_each_op([&](int op, int mb) {
    all += model.price(program, program.ops[op], works[mb], launch.stream, rank);
  });
  return all;
}

}  // namespace braid
