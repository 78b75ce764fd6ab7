#include "braid/base/error.h"
#include "braid/job/job.h"

namespace braid::job {

std::unique_ptr<Job> start_job(const JobConfig& config) {
  fail(ErrorCode::kUnsupported,
       "a job of {} processes: this build has no UCX: build it with Debian's libucx-dev, or say "
       "--job none",
       config.launch.processes);
}

std::string job_libraries() {
  return "none in this build (Debian's libucx-dev, libpmix-dev)";
}

}  // namespace braid::job
