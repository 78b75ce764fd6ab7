#include "braid/schedule/plan.h"

#include "braid/ops/fusion.h"
#include "braid/schedule/memory_plan.h"
#include "braid/schedule/verifier.h"

namespace braid {
namespace {

ScheduleContext::Recording record(const OpScheduler& strategy, const Program& program,
                                  const PlanRequest& request) {
  PartitionRules rules;
  ask(strategy, [&] { strategy.partition(rules); });
  const std::vector<Partition> partitions = rules.apply(program);
  ScheduleContext ctx(program, request.micro_batches, partitions, request.topology, strategy.name(),
                      request.price);
  ask(strategy, [&] { strategy.schedule(ctx); });
  return ctx.finish();
}

// The fused op that stands for a launch's ops.
Op make_replacement(const Program& program, const std::vector<int>& readers, const Launch& launch,
                    const std::string& name, const std::string& strategy) {
  const std::span<const Op> ops =
      std::span(program.ops)
          .subspan(static_cast<size_t>(launch.op), static_cast<size_t>(launch.num_ops));
  const auto refuse = [&](std::string_view why) {
    fail(ErrorCode::kInvalidArgument, "schedule '{}': {} at '{}', micro-batch {}: '{}' {}",
         strategy, ops[0].def->kind, ops[0].scope, launch.micro_batch, name, why);
  };
  const Fusion* fusion = find_replacement(name);
  if (fusion == nullptr) refuse("is no replacement that is known");
  std::optional<Op> op;
  if (fusion->pattern.size() == ops.size()) op = fused_op(program, *fusion, ops, readers);
  if (!op) refuse("does not fit these ops, or another op reads what it would not make");
  return *std::move(op);
}

}  // namespace

std::vector<Schedule> plan(const OpScheduler& strategy, std::span<const PlanRank> ranks,
                           const PlanRequest& request) {
  BRAID_CHECK(!ranks.empty() && !request.micro_batches.empty());
  const ScheduleContext::Recording recording = record(strategy, *ranks[0].program, request);
  // Where the tokens are divided over ranks and nobody has said how many a rank has.
  std::vector<MicroBatch> micro_batches = request.micro_batches;
  for (MicroBatch& mb : micro_batches) {
    mb.capacity.expert_row = ranks[0].program->expert_rows(mb.capacity.token);
    if (mb.capacity.shard > 0 || ranks[0].program->capacity.shard == 0) continue;
    mb.capacity = sharded(mb.capacity, static_cast<int>(ranks.size()));
  }
  std::vector<Schedule> schedules;
  std::vector<const Program*> programs;
  for (const PlanRank& rank : ranks) {
    Schedule schedule{.strategy = strategy.name(),
                      .micro_batches = micro_batches,
                      .replacements = {},
                      .launches = recording.launches,
                      .memory = {}};
    std::vector<int> readers;
    if (!recording.replacements.empty()) readers = count_readers(*rank.program);
    for (Launch& launch : schedule.launches) {
      if (launch.replacement >= 0) {
        const std::string& name = recording.replacements[static_cast<size_t>(launch.replacement)];
        schedule.replacements.push_back(
            make_replacement(*rank.program, readers, launch, name, schedule.strategy));
        launch.replacement = static_cast<int>(schedule.replacements.size()) - 1;
      }
      launch.kernel = rank.catalog->find(*rank.program, schedule.op(*rank.program, launch),
                                         launch.stream, schedule.capacity(*rank.program, launch));
    }
    schedules.push_back(std::move(schedule));
    programs.push_back(rank.program);
  }
  const MemoryPlan memory = plan_memory(programs, schedules);
  for (Schedule& schedule : schedules) schedule.memory = memory;
  verify(programs, schedules);
  return schedules;
}

}  // namespace braid
