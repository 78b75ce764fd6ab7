#include "braid/engine/attention/attention_job.h"

#include <bit>

#include "braid/backend/device_spec.h"
#include "braid/base/fnv.h"
#include "braid/engine/job_layout.h"
#include "braid/job/packing.h"

namespace braid::attention_modes {

Topology lay_out(AttentionBench& bench) {
  Topology topology{.machines = 1, .devices = bench.job->processes()};
  if (!bench.machines.empty()) topology = parse_topology(bench.machines);
  RunnerConfig layout{.device = parse_device(bench.device), .tp = topology.ranks()};
  layout.links.machines = topology.machines;
  layout.links.racks = topology.racks;
  if (bench.link_gbps > 0) layout.links.machine_link = Link{bench.link_gbps * 1e9, 0};
  layout.job = bench.job;
  braid::lay_out(layout);
  if (layout.device.cuda) {
    take_gpu(layout);
    bench.device = fmt::format("cuda:{}", layout.device.ids.front());
  }
  const int ranks = topology.ranks();
  topology.machines = layout.links.machines;
  topology.devices = ranks / topology.machines;
  return topology;
}

std::unique_ptr<fabric::Fabric> make_job_fabric(const AttentionBench& bench,
                                                const Topology& topology) {
  return bench.job->make_fabric({.ranks = topology.ranks(),
                                 .threads_per_rank = bench.threads + kNumStreams - 1,
                                 .machines = topology.machines});
}

std::vector<std::vector<double>> gather(job::Job* job, std::string_view what,
                                        const std::vector<double>& mine) {
  if (job == nullptr) return {mine};
  job::Packer packer;
  packer.add(std::ssize(mine));
  for (const double number : mine) packer.add(std::bit_cast<int64_t>(number));
  const std::vector<std::string> packed = job->gather(what, packer.bytes());
  if (packed.empty()) return {mine};
  std::vector<std::vector<double>> all;
  for (const std::string& bytes : packed) {
    job::Unpacker fields(bytes);
    auto& numbers = all.emplace_back(static_cast<size_t>(fields.number()));
    for (double& number : numbers) number = std::bit_cast<double>(fields.number());
  }
  return all;
}

void agree_on_plan(job::Job& job, const ModePlan& plan) {
  Fnv hash;
  for (size_t r = 0; r < plan.schedules.size(); ++r) {
    hash.add(to_string(plan.programs[r]));
    hash.add(static_cast<int64_t>(hash_of(plan.schedules[r])));
  }
  job.agree("plans", fmt::format("{:016x}", hash.value()));
}

}  // namespace braid::attention_modes
