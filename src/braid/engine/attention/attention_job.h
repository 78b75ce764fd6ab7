#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "braid/engine/attention/attention_modes.h"
#include "braid/fabric/fabric.h"

// Measures attention over the ranks of a job, in this process and in its others.
namespace braid::attention_modes {

// The ranks of `bench.machines`, or else a rank for each process on the machines of the job's
// hosts. On GPUs `bench.device` becomes this process' GPU. Collective; fails as
// braid::lay_out(RunnerConfig&) and take_gpu() do.
Topology lay_out(AttentionBench& bench);

// The job's fabric for these ranks, on CPUs.
std::unique_ptr<fabric::Fabric> make_job_fabric(const AttentionBench& bench,
                                                const Topology& topology);

// Numbers of all processes, in order, at process 0. Elsewhere, and without a job (null), `mine`
// alone.
std::vector<std::vector<double>> gather(job::Job* job, std::string_view what,
                                        const std::vector<double>& mine);

// Fails with kInvalidArgument where a process has made another plan.
void agree_on_plan(job::Job& job, const ModePlan& plan);

}  // namespace braid::attention_modes
