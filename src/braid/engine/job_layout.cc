#include "braid/engine/job_layout.h"

#include <algorithm>

namespace braid {
namespace {

// Machines of the hosts, which have equal runs of processes.
int machines_of(const job::Job& job) {
  std::vector<std::string> hosts;  // in the order of the processes
  for (const job::Member& member : job.members()) hosts.push_back(member.host);
  std::vector<std::string> distinct;
  for (const std::string& host : hosts) {
    if (std::ranges::find(distinct, host) == distinct.end()) distinct.push_back(host);
  }
  const size_t each = hosts.size() / distinct.size();
  for (size_t p = 0; p < hosts.size(); ++p) {
    if (each * distinct.size() == hosts.size() && hosts[p] == distinct[p / each]) continue;
    fail(ErrorCode::kInvalidArgument,
         "processes lie on hosts {}: wanted equal numbers, those of one host after each other "
         "(mpirun --map-by slot, srun --distribution=block)",
         fmt::join(hosts, " "));
  }
  return static_cast<int>(distinct.size());
}

}  // namespace

void lay_out(RunnerConfig& config) {
  const job::Job& job = *config.job;
  if (config.device.cuda) {
    fail(ErrorCode::kUnsupported,
         "a job of {} processes computes on CPUs so far: --device cpu, or one process with --tp "
         "for the GPUs of one machine",
         job.processes());
  }
  if (config.links.any_emulated()) {
    fail(ErrorCode::kInvalidArgument,
         "--link-gbps: links between the {} processes of a job are real: one process emulates "
         "them",
         job.processes());
  }
  if (config.tp < 1 || config.tp % job.processes() != 0) {
    fail(ErrorCode::kInvalidArgument,
         "{} rank{} in a job of {} processes: --tp {}, or --sp with --ranks {}, gives each "
         "process one",
         config.tp, config.tp == 1 ? "" : "s", job.processes(), job.processes(), job.processes());
  }
  config.mapped = false;
  if (config.links.machines == 1) config.links.machines = machines_of(job);
}

}  // namespace braid
