#include "braid/job/launch/variables.h"

namespace braid::job {

// PMIx tells the size through its server; launchers also set variables.
std::optional<Launch> pmix_launch(const Environment& env) {
  if (!find(env, "PMIX_RANK") || !find(env, "PMIX_NAMESPACE")) return {};
  Launch launch{.source = LaunchSource::pmix};
  for (std::string_view size : {"OMPI_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS"}) {
    if (find(env, size)) {
      launch.processes = number(env, size, 1, kMaxProcesses);
      launch.process = number(env, "PMIX_RANK", 0, launch.processes - 1);
      return launch;
    }
  }
  launch.process = number(env, "PMIX_RANK", 0, kMaxProcesses - 1);
  launch.processes = 0;  // the server knows
  return launch;
}

}  // namespace braid::job
