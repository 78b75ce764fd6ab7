#include "braid/job/launch/variables.h"

namespace braid::job {

std::optional<Launch> lws_launch(const Environment& env) {
  auto launch = rank_and_size(env, LaunchSource::lws, "LWS_WORKER_INDEX", "LWS_GROUP_SIZE");
  if (!launch) return {};
  add_meeting_place(env, *launch);
  const std::string* leader = find(env, "LWS_LEADER_ADDRESS");
  if (!leader) {
    fail(ErrorCode::kInvalidArgument,
         "LWS_GROUP_SIZE is set in the environment and LWS_LEADER_ADDRESS is not");
  }
  launch->host = *leader;
  return launch;
}

}  // namespace braid::job
