#include "braid/engine/cluster_plan.h"

#include <numeric>

#include "braid/engine/absent_world.h"
#include "braid/engine/cluster_kernels.h"
#include "braid/engine/describe_cluster.h"
#include "braid/engine/plan_agreement.h"
#include "braid/engine/step_planners.h"

namespace braid {
namespace {

class DescribedWorld : public AbsentWorld {
 public:
  using AbsentWorld::AbsentWorld;
  std::vector<std::unique_ptr<Executor>> bind(PlannedForward planned, bool beside) override {
    plans_.push_back(plan_line(planned));
    return AbsentWorld::bind(std::move(planned), beside);
  }
  std::vector<std::string> explain() const override { return plans_; }

 private:
  std::vector<std::string> plans_;
};

Batch batch_of(const ClusterDescription& cluster, const ClusterStep& step) {
  const int64_t size = cluster.cache.page_size;
  Batch batch(size);
  int64_t next_page = 0;
  const auto add = [&](int64_t tokens) {
    std::vector<int32_t> pages(ceil_div(step.depth + tokens, size));
    std::iota(pages.begin(), pages.end(), static_cast<int32_t>(next_page));
    next_page += std::ssize(pages);
    if (std::ssize(pages) > cluster.cache.pages_per_sequence || next_page > cluster.cache.pages) {
      fail(ErrorCode::kInvalidArgument,
           "{} tokens behind {} others do not fit the cache of the description: {} pages of {}",
           tokens, step.depth, cluster.cache.pages, size);
    }
    batch.add(std::vector<int32_t>(tokens), step.depth, pages, 1);
  };
  for (int64_t i = 0; i < step.decodes; ++i) add(1);
  if (step.tokens > 0) add(step.tokens);
  if (batch.sequences().empty()) {
    fail(ErrorCode::kInvalidArgument, "nothing to plan: --tokens and --decodes are both 0");
  }
  return batch;
}

}  // namespace

std::vector<std::string> plan_cluster(const ClusterDescription& cluster, const Model& model,
                                      const ClusterStep& step) {
  require_alike(cluster);
  if (const std::string here = identity(model); !cluster.model.empty() && cluster.model != here) {
    fail(ErrorCode::kInvalidArgument, "models differ: the description has '{}', {} has '{}'",
         cluster.model, model.source().path(), here);
  }
  const RunnerConfig config = runner_of(cluster);
  const std::vector<SequenceMesh> meshes = meshes_of(model, config);
  const auto catalog = cluster_kernels(cluster, !meshes.empty() || config.ep > 1);
  DescribedWorld world(*catalog);
  const auto planner = make_step_planner(model, config, meshes, world);
  const Batch batch = batch_of(cluster, step);
  while (planner->prepare_first(batch)) planner->record();
  planner->prepare(batch);
  return world.explain();
}

}  // namespace braid
