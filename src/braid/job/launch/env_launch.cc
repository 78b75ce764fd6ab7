#include "braid/job/launch/variables.h"

namespace braid::job {

std::optional<Launch> env_launch(const Environment& env) {
  auto launch = rank_and_size(env, LaunchSource::env, "RANK", "WORLD_SIZE");
  if (!launch) return {};
  add_meeting_place(env, *launch);
  // torchrun's agent listens at MASTER_PORT itself then.
  const std::string* agent = find(env, "TORCHELASTIC_USE_AGENT_STORE");
  if (agent && *agent == "True" && launch->port < 65535) ++launch->port;
  return launch;
}

}  // namespace braid::job
