#include "braid/schedule/plan_schedules.h"

#include "braid/ops/expert_exchange.h"
#include "braid/ops/fusion.h"
#include "braid/schedule/beside.h"
#include "braid/schedule/launch_groups.h"
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
  std::vector<Op> ops;
  for (int o = launch.op; o < launch.op_end(); ++o) ops.push_back(program.ops[o]);
  for (const BatchOp& other : launch.joined) ops.push_back(program.ops[other.op]);
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

void plan_schedules(Plan& plan, const OpScheduler& strategy, const PlanRequest& request) {
  const std::vector<Program>& programs = plan.programs;
  const std::vector<const KernelCatalog*>& catalogs = request.catalogs;
  BRAID_CHECK(!programs.empty() && !request.micro_batches.empty());
  BRAID_CHECK(catalogs.size() == 1 || catalogs.size() == programs.size(),
              "{} catalogs for {} ranks", catalogs.size(), programs.size());
  const ScheduleContext::Recording recording = record(strategy, programs[0], request);
  // Where the tokens are divided over ranks and nobody has said how many a rank has.
  std::vector<MicroBatch> micro_batches = request.micro_batches;
  for (MicroBatch& mb : micro_batches) {
    mb.capacity.expert_row = ops::expert_row_capacity(programs[0], mb.capacity.token);
    if (mb.capacity.shard > 0 || programs[0].capacity.shard == 0) continue;
    mb.capacity = sharded(mb.capacity, plan.ranks());
  }
  plan.schedules.clear();
  for (size_t r = 0; r < programs.size(); ++r) {
    const Program& program = programs[r];
    const KernelCatalog& catalog = *catalogs[r % catalogs.size()];
    Schedule schedule{.strategy = strategy.name(),
                      .micro_batches = micro_batches,
                      .replacements = {},
                      .launches = recording.launches,
                      .memory = {}};
    std::vector<int> readers;
    if (!recording.replacements.empty()) readers = count_readers(program);
    for (Launch& launch : schedule.launches) {
      if (launch.replacement >= 0) {
        const std::string& name = recording.replacements[launch.replacement];
        schedule.replacements.push_back(
            make_replacement(program, readers, launch, name, schedule.strategy));
        launch.replacement = static_cast<int>(schedule.replacements.size()) - 1;
      }
      launch.kernel = catalog.find(program, schedule.op(program, launch), launch.stream,
                                   schedule.capacity(program, launch));
    }
    find_beside(program, schedule);
    find_groups(program, catalog, request.ranks_alike, schedule);
    plan.schedules.push_back(std::move(schedule));
  }
  const MemoryPlan memory = plan_memory(plan);
  for (Schedule& schedule : plan.schedules) schedule.memory = memory;
  verify(plan);
}

}  // namespace braid
