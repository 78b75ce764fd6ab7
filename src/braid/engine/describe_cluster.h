#pragma once

#include "braid/engine/cluster_description.h"
#include "braid/engine/runner.h"

namespace braid {

// The description of a runner whose ranks are all `rank`.
ClusterDescription described(const RunnerConfig& config, const RankDescription& rank);
// The same ranks' runner, for plans; in one process.
RunnerConfig runner_of(const ClusterDescription& cluster);

// The description of a runner on CPUs: in a job gathered from all processes, which all call this
// and then have the same. Fails at all of them as require_alike().
ClusterDescription describe_cluster(const RunnerConfig& config);

// A model file's size and a hash of its first MiB, or of a folder's tensors: no weight is read.
std::string identity(const Model& model);

}  // namespace braid
