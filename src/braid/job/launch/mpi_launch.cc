#include "braid/job/launch/variables.h"

namespace braid::job {

std::optional<Launch> mpi_launch(const Environment& env) {
  auto launch =
      rank_and_size(env, LaunchSource::mpi, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE");
  if (!launch) launch = rank_and_size(env, LaunchSource::mpi, "PMI_RANK", "PMI_SIZE");
  if (launch) add_meeting_place(env, *launch);
  return launch;
}

}  // namespace braid::job
