#pragma once

#include <string>
#include <vector>

#include "braid/engine/cluster_description.h"
#include "braid/model/model.h"

namespace braid {

// A step of a described cluster: a prompt of `tokens` tokens and `decodes` sequences with a single
// token, each behind `depth` keys in the cache.
struct ClusterStep {
  int64_t tokens = 512;
  int64_t decodes = 0;
  int64_t depth = 0;
};

// The lines (plan_line) of the step's plans, with the hashes of a job that has the description: one
// plan, or before it a plan that moves keys. No device is needed. Fails with kInvalidArgument where
// the model is another one, or the cache too small, and like Runner.
std::vector<std::string> plan_cluster(const ClusterDescription& cluster, const Model& model,
                                      const ClusterStep& step);

}  // namespace braid
