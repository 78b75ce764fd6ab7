#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bindings/bindings.h"
#include "braid/engine/step_plans.h"
#include "braid/schedule/timeline_svg.h"

namespace braid::python {
namespace {

// The launches of rank 0, in recorded order.
nb::list launches_of(const StepPlans& plans) {
  const SimulatedPlan& plan = plans.chosen();
  const Schedule& schedule = plan.schedule();
  const Program& program = plan.planned.programs[0];
  nb::list list;
  for (size_t i = 0; i < schedule.launches.size(); ++i) {
    const Launch& launch = schedule.launches[i];
    const LaunchTime& time = plan.step.times[0][i];
    const Op& op = schedule.op(program, launch);
    nb::dict entry;
    entry["kind"] = std::string(op.def->kind);
    entry["scope"] = program.ops[static_cast<size_t>(launch.op)].scope;
    entry["ops"] = nb::make_tuple(launch.op, launch.op_end());
    entry["micro_batches"] = nb::make_tuple(launch.micro_batch, launch.micro_batch_end());
    entry["stream"] = std::string(to_string(launch.stream));
    nb::list waits;
    for (const Wait& wait : launch.waits) {
      if (!wait.inside() && !wait.partial()) waits.append(wait.launch);
    }
    entry["waits"] = waits;
    entry["begin_ms"] = 1e3 * time.begin;
    entry["end_ms"] = 1e3 * time.end;
    list.append(entry);
  }
  return list;
}

}  // namespace

void bind_plans(nb::module_& m) {
  nb::class_<StepPlans>(m, "StepPlans", "A planned step; use braid.plan().")
      .def(
          "__init__",
          [](StepPlans* self, const std::string& model, const std::string& config,
             const std::string& schedule, std::shared_ptr<OpScheduler> own,
             const std::string& profile, int64_t tokens, int64_t decodes, int64_t depth, int tp,
             const std::string& sp, const std::string& machines, bool compare) {
            const StepRequest request{.model = model,
                                      .config = config,
                                      .schedule = schedule,
                                      .own = std::move(own),
                                      .profile = profile,
                                      .tokens = tokens,
                                      .decodes = decodes,
                                      .depth = depth,
                                      .tp = tp,
                                      .sp = sp,
                                      .machines = machines,
                                      .compare = compare};
            try {
              unlocked([&] { new (self) StepPlans(request); });
            } catch (const std::exception&) {
              raise_signals();
              throw;
            }
          },
          nb::kw_only(), nb::arg("model"), nb::arg("config"), nb::arg("schedule"),
          nb::arg("own").none(), nb::arg("profile"), nb::arg("tokens"), nb::arg("decodes"),
          nb::arg("depth"), nb::arg("tp"), nb::arg("sp"), nb::arg("machines"), nb::arg("compare"))
      .def("json", [](const StepPlans& plans) { return plans.json().dump(); })
      .def("listing", &StepPlans::listing)
      .def("launches", launches_of, nb::sig("def launches(self) -> list[dict[str, typing.Any]]"))
      .def("svg", [](const StepPlans& plans) {
        const Timeline timeline = plans.timeline();
        return timeline_svg({&timeline, 1});
      });
}

}  // namespace braid::python
