#include "braid/engine/job_layout.h"

#include <algorithm>

#include "braid/engine/gpu_identity.h"

namespace braid {
namespace {

// Machines: hosts with equal runs of processes.
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

void check_gpus(const RunnerConfig& config) {
  const job::Job& job = *config.job;
  const int machines = std::max(machines_of(job), config.links.machines);
  if (machines > 1) {
    fail(ErrorCode::kUnsupported,
         "a job on GPUs of {} machines: a job's GPUs are those of a single machine so far",
         machines);
  }
  if (config.tp != job.processes()) {
    fail(
        ErrorCode::kInvalidArgument,
        "{} rank{} on GPUs in a job of {} processes: each process has a GPU and a rank, so --tp {}",
        config.tp, config.tp == 1 ? "" : "s", job.processes(), job.processes());
  }
}

// Ranks are also numbered so among the processes of their host.
int gpu_of(const job::Job& job, const DeviceSpec& device) {
  const int rank = job.process();
  return choose_gpu({job.name(rank), rank, rank, usable_gpus(), device});
}

}  // namespace

void start_gpu(const job::Job& job, const DeviceSpec& device) {
  if (!device.cuda) return;
  try {
    use_gpu(gpu_of(job, device));
  } catch (const Error&) {
    return;
  }
}

void take_gpu(RunnerConfig& config) {
  job::Job& job = *config.job;
  const int rank = job.process();
  const int gpu = gpu_of(job, config.device);
  use_gpu(gpu);
  const std::vector<std::string> uuids = job.gather("GPUs", gpu_identity(gpu).uuid);
  std::string verdict;
  if (rank == 0) {
    std::vector<std::string> names;
    for (int p = 0; p < job.processes(); ++p) names.push_back(job.name(p));
    try {
      require_own_gpus(uuids, names);
    } catch (const Error& error) {
      verdict = error.what();
    }
  }
  verdict = job.broadcast("GPUs", verdict);
  if (!verdict.empty()) throw Error(ErrorCode::kInvalidArgument, verdict);
  config.device.ids = {gpu};
}

int choose_gpu(const GpuRequest& r) {
  const std::vector<int>& ids = r.device.ids;
  if (!ids.empty() && r.rank >= std::ssize(ids)) {
    fail(ErrorCode::kInvalidArgument, "{}: --device names GPUs for {} rank{}", r.who, ids.size(),
         ids.size() == 1 ? "" : "s");
  }
  int gpu = r.visible == 1 ? 0 : r.local_rank;
  if (!ids.empty()) gpu = ids[r.rank];
  if (gpu < r.visible) return gpu;
  fail(ErrorCode::kResource, "{}, local rank {}, wants cuda:{}: this process sees {} GPU{}", r.who,
       r.local_rank, gpu, r.visible, r.visible == 1 ? "" : "s");
}

void require_own_gpus(const std::vector<std::string>& uuids,
                      const std::vector<std::string>& names) {
  for (size_t b = 1; b < uuids.size(); ++b) {
    for (size_t a = 0; a < b; ++a) {
      if (uuids[a] != uuids[b]) continue;
      fail(ErrorCode::kInvalidArgument,
           "{} and {} have the same GPU ({}): wanted a GPU for each process, by its local rank or "
           "by CUDA_VISIBLE_DEVICES",
           names[a], names[b], uuids[a]);
    }
  }
}

void lay_out(RunnerConfig& config) {
  const job::Job& job = *config.job;
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
  if (config.device.cuda) return check_gpus(config);
  config.mapped = false;
  if (config.links.machines == 1) config.links.machines = machines_of(job);
}

}  // namespace braid
