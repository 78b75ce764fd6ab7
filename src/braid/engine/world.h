#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "braid/backend/device_spec.h"
#include "braid/engine/rank.h"
#include "braid/engine/token_loop.h"
#include "braid/fabric/fabric.h"
#include "braid/job/job.h"
#include "braid/model/model.h"
#include "braid/parallel/mesh.h"

namespace braid {

class StepQueue;
struct BoundForward;
struct ContextKey;
struct PlannedForward;
struct StepQueueOptions;
struct StepSize;
class StepPlanner;

struct WorldConfig {
  int ranks = 1;
  int groups = 1;   // of ranks, even: a rank also meets the ranks of its place in all groups
  int threads = 1;  // of each rank's CPU
  fabric::LinkModel links;
  int64_t deadline_ms = 60000;  // of a wait for another rank; in kernels 10 s at most
  std::vector<Mesh> sequence;   // groups of ranks that reach into each other's values; empty: none
  // False: communication ops do nothing, so that ranks wait for nobody and results are wrong. It
  // says what a step takes without them. Ops that compute and communicate in one kernel fail with
  // kUnsupported.
  bool communication = true;
  job::Job* job = nullptr;  // whose processes have the ranks; null: this process has all
  // By which plans are made, of any rank; null: by the kernels of live ranks. Outlives the world.
  const KernelCatalog* catalog = nullptr;
  // How launches of a decode step are fused on GPUs, as `--decode` says it
  // (docs/cluster-fusion.md).
  std::string decode = "auto";
};

// The ranks of a job: where each computes, and how they reach each other.
class World {
 public:
  virtual ~World() = default;
  virtual fabric::Fabric& fabric() = 0;
  virtual Rank& rank(int rank) = 0;  // of this process
  // Ranks wait for each other on the device: every rank prepares a step before any runs it.
  virtual bool waits_on_device() const { return false; }

  // Whether tokens are sampled on the device: loop() then makes the loops, else HostLoop does.
  virtual bool samples_on_device() const { return false; }
  // A loop that stays on the device. `prompt` has made the logits of the prompts' last tokens;
  // `step` computes one token of each sequence, and its inputs are those of these last tokens. Both
  // and the planner, which is told of pages that the loop takes, outlive the loop.
  virtual std::unique_ptr<TokenLoop> loop(LoopRequest request, const BoundForward& prompt,
                                          const BoundForward& step, StepPlanner& planner);

  // A queue whose tokens are sampled on the device. `plan` makes the steps that it will need, which
  // outlive the call but not the world.
  using PlanSize = std::function<std::shared_ptr<BoundForward>(const StepSize& size)>;
  virtual std::unique_ptr<StepQueue> step_queue(const StepQueueOptions& options,
                                                const PlanSize& plan);

  // The kernels of the first `ranks` ranks, by which plans are made: of WorldConfig, else of live
  // ranks, and then another process' ranks have the kernels that this one has.
  virtual std::vector<const KernelCatalog*> catalogs(int ranks);
  // Binds a plan over the first of the ranks, all or fewer (Rank::bind): [ranks of the plan], null
  // for those of other processes. In a job all processes compare the plan first.
  virtual std::vector<std::unique_ptr<Executor>> bind(PlannedForward planned, bool beside = false);
  // The same with the plan's key, and after keep_plans() with the Programs and Schedules of all
  // ranks, those of other processes, too.
  BoundForward bound(const ContextKey& key, PlannedForward planned, bool beside = false);
  // In a job a line for each plan, with the hash that all processes have compared.
  virtual std::vector<std::string> explain() const { return {}; }
  void keep_plans() { keeps_plans_ = true; }

 protected:
  virtual void compare(const PlannedForward& /*planned*/) {}

 private:
  bool keeps_plans_ = false;
};

// A whole weight in the host's memory, by the name that Programs call it.
using WeightOf = std::function<TensorView(std::string_view name)>;

// Ranks that are teams of threads of this process, over the local fabric, or in a job those that
// this process has, over the job's. `model` outlives them.
std::unique_ptr<World> make_cpu_world(const Model& model, const WorldConfig& config);
// The same with weights of any origin, which outlive them.
std::unique_ptr<World> make_cpu_world(WeightOf weight, const WorldConfig& config);

// The source of GPU weights; the named objects outlive the weights.
struct WeightOrigin {
  WeightOf weight;
  const RandomWeights* random = nullptr;  // there: made on the device in place of copies
};

// Ranks on GPUs of this machine, over the peer fabric. Fails with kUnsupported where this build has
// no CUDA, with kResource where there are too few GPUs or no path between two of them.
std::unique_ptr<World> make_cuda_world(const Model& model, const WorldConfig& config,
                                       const DeviceSpec& device);
std::unique_ptr<World> make_cuda_world(const WeightOrigin& origin, const WorldConfig& config,
                                       const DeviceSpec& device);

// GPUs that this build and machine can use.
int usable_gpus();

// Of a GPU of this machine, in bytes. Fails with kUnsupported or kResource where there is none.
struct GpuMemory {
  int64_t free = 0;
  int64_t total = 0;
};
GpuMemory gpu_memory(int id);

// What the maker calls a GPU of this machine: "NVIDIA H200". Fails with kUnsupported or kResource
// where there is no such GPU.
std::string gpu_name(int id);

// Its kernels that compute, for plans before there is a world. Fails likewise.
std::unique_ptr<KernelCatalog> kernels_of_gpu(int id);

}  // namespace braid
