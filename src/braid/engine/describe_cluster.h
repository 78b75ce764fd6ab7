#pragma once

#include "braid/engine/cluster_description.h"
#include "braid/engine/runner.h"

namespace braid {

// The description for a runner with ranks that all equal `rank`.
ClusterDescription described(const RunnerConfig& config, const RankDescription& rank);
// The same ranks' runner, for plans; in one process.
RunnerConfig runner_of(const ClusterDescription& cluster);

// The description for a runner on CPUs. In a job all processes call it and get the same
// description, gathered from all. Fails on all processes as require_alike() does.
ClusterDescription describe_cluster(const RunnerConfig& config);

// A model file's size and a hash over its first MiB, or over a folder's tensors. Reads no weight.
std::string identity(const Model& model);

}  // namespace braid
