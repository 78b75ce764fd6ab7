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

// The lines (plan_line) for the step's plans, with the same hashes as a job on the described
// cluster: one plan, or a plan that moves keys and then the plan. Needs no device. Fails with
// kInvalidArgument for another model or too small a cache, and as Runner does.
std::vector<std::string> plan_cluster(const ClusterDescription& cluster, const Model& model,
                                      const ClusterStep& step);

}  // namespace braid
