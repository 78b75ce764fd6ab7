#include "braid/engine/diffusion/step_choice.h"

#include <algorithm>
#include <limits>

#include "braid/engine/diffusion/step_prices.h"
#include "braid/ops/fusion.h"
#include "braid/schedule/plan_schedules.h"
#include "braid/schedule/simulator.h"

namespace braid {

std::string_view to_string(TextRows rows) {
  return rows == TextRows::split ? "split" : "replicated";
}

PlannedForward plan_network(const Program& program, const LayoutPlan& layout,
                            const std::vector<const KernelCatalog*>& catalogs,
                            const Topology& topology, const OpScheduler& strategy) {
  PlannedForward planned;
  planned.lowered = lower(program, layout, catalogs);
  for (const RankProgram& rank : planned.lowered) {
    const KernelCatalog& catalog = *catalogs[static_cast<size_t>(rank.rank)];
    planned.programs.push_back(fuse(fuse(rank.program, fusions()), catalog.fusions()));
  }
  plan_schedules(planned, strategy,
                 {.catalogs = catalogs,
                  .micro_batches = {{.capacity = planned.programs[0].capacity}},
                  .topology = topology,
                  .price = {}});
  return planned;
}

double network_seconds(const Plan& planned, const CostModel& cost) {
  const Work work{.extents = planned.programs[0].capacity};
  return simulate(planned, {&work, 1}, cost).seconds;
}

StepChoice choose_step(const RankRequest& request, int64_t heads, std::span<const StepForm> forms,
                       const KernelCatalog* like) {
  const SequenceParallel& sp = request.sp;
  const Topology& topology = request.topology;
  if (sp.mode && request.schedule != "auto" && forms.size() == 1) {
    const StepForm& form = forms[0];
    return {sequence_mesh(*sp.mode, topology, heads, sp.degrees),
            form.schedule.empty() ? request.schedule : form.schedule, form.text};
  }
  if (!request.profile) {
    fail(ErrorCode::kInvalidArgument, "{} 'auto' prices steps: it needs a profile",
         !sp.mode                     ? "sp"
         : request.schedule == "auto" ? "schedule"
                                      : "text rows");
  }
  const StepPrices prices(*request.profile, topology, like);
  std::vector<std::string> all = {request.schedule};
  if (request.schedule == "auto") all = {"sequence_parallel", "sequential"};
  std::optional<StepChoice> best;
  std::vector<std::string> priced;
  // Forms that fit come first, then by time; forms that do not, by their memory.
  const auto none = std::pair(std::numeric_limits<int64_t>::max(), 0.0);
  auto least = none;
  for (const SequenceMesh& mesh : meshes_of(sp, topology, heads)) {
    for (size_t i = 0; i < forms.size(); ++i) {
      const StepForm& form = forms[i];
      const std::vector<std::string> own = {form.schedule};
      for (const std::string& schedule : form.schedule.empty() ? all : own) {
        const PlannedForward planned = prices.plan(form.program, form.parts, mesh, schedule);
        const double seconds = prices.seconds(planned) * form.runs;
        const int64_t bytes = planned.schedules[0].memory.arena_bytes;
        const bool fits = request.room == 0 || bytes <= request.room;
        priced.push_back(fmt::format(
            "{}, {}, {}{}{}{}: {:.3f} ms{}", to_string(mesh.mode), to_string(mesh.degrees),
            schedule, form.text == TextRows::split ? "" : ", text replicated",
            form.name.empty() ? "" : ", ", form.name, seconds * 1e3,
            fits ? ""
                 : fmt::format(", values of {:.1f} GB in {:.1f}", static_cast<double>(bytes) * 1e-9,
                               static_cast<double>(request.room) * 1e-9)));
        const auto price = std::pair(fits ? 0 : bytes, seconds);
        if (price >= least) continue;
        least = price;
        best = StepChoice{mesh, schedule, form.text, {}, seconds, i, price.first};
      }
    }
  }
  BRAID_CHECK(best.has_value(), "no mesh was priced");
  best->priced = std::move(priced);
  return *std::move(best);
}

}  // namespace braid
