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

class Runner;
class StepQueue;
struct BoundForward;
struct ContextKey;
struct PlannedForward;
struct StepQueueOptions;
class StepPlanner;

struct WorldConfig {
  int ranks = 1;
  int groups = 1;   // even groups; a rank also meets the ranks with its place in other groups
  int threads = 1;  // of each rank's CPU
  fabric::LinkModel links;
  int64_t deadline_ms = 60000;  // of a wait for another rank; in kernels 10 s at most
  std::vector<Mesh> sequence;   // groups of ranks that reach into each other's values; empty: none
  // False: communication ops do nothing, ranks wait for nobody, and results are wrong. For timing a
  // step without communication. Ops that compute and communicate in the same kernel fail with
  // kUnsupported.
  bool communication = true;
  job::Job* job = nullptr;  // whose processes have the ranks; null: this process has all
  // Kernels for planning, for any rank; null: the kernels of live ranks. Outlives the world.
  const KernelCatalog* catalog = nullptr;
  // GPUs keep whole weights, and a plan's parts are views: plans that divide weights and plans that
  // do not take the same memory. CPU ranks' parts are views anyway.
  bool whole_weights = false;
  // How launches of a decode step are fused on GPUs, by the name in `--decode`
  // (docs/cluster-fusion.md).
  std::string decode = "auto";
};

// A job's ranks: their devices, and how they reach each other.
class World {
 public:
  virtual ~World() = default;
  virtual fabric::Fabric& fabric() = 0;
  virtual Rank& rank(int rank) = 0;  // of this process
  // Ranks wait for each other on the device: every rank prepares a step before any runs it.
  virtual bool waits_on_device() const { return false; }

  // Whether tokens are sampled on the device: loop() then makes the loops, else HostLoop does.
  virtual bool samples_on_device() const { return false; }
  // A loop with tokens that stay on the device. `prompt` has made logits for the prompts' last
  // tokens; `step` computes a token of each sequence, its first inputs are these last tokens, and
  // the planner hears of pages; or planner.loops_on_device() is false. All outlive the loop.
  virtual std::unique_ptr<TokenLoop> loop(LoopRequest request, const BoundForward& prompt,
                                          const BoundForward& step, StepPlanner& planner);

  // A queue with tokens sampled on the device. `planner`, which outlives the queue, plans sizes of
  // steps before the first step, and later the batches that have no size.
  virtual std::unique_ptr<StepQueue> step_queue(const StepQueueOptions& options,
                                                StepPlanner& planner);
  // The same for steps that `runner`, which outlives the queue, plans one by one.
  virtual std::unique_ptr<StepQueue> step_queue(const StepQueueOptions& options, Runner& runner);

  // Kernels of the first `ranks` ranks, for planning: WorldConfig's, else those of live ranks.
  // Another process' ranks then count as having this process' kernels.
  virtual std::vector<const KernelCatalog*> catalogs(int ranks);
  // Binds a plan over all ranks or the first few (Rank::bind): [ranks of the plan], null for other
  // processes' ranks. In a job all processes compare the plan first.
  virtual std::vector<std::unique_ptr<Executor>> bind(PlannedForward planned, bool beside = false);
  // The same with the plan's key. After keep_plans() the result holds Programs and Schedules for
  // all ranks, also for other processes' ranks.
  BoundForward bound(const ContextKey& key, PlannedForward planned, bool beside = false);
  // In a job a line for each plan, with the hash that all processes have compared.
  virtual std::vector<std::string> explain() const { return {}; }
  void keep_plans() { keeps_plans_ = true; }

 protected:
  virtual void compare(const PlannedForward& /*planned*/) {}

 private:
  bool keeps_plans_ = false;
};

// A whole weight in host memory, by its name in Programs.
using WeightOf = std::function<TensorView(std::string_view name)>;

// CPU ranks: teams of threads in this process over the local fabric, or in a job this process'
// ranks over the job's fabric. `model` outlives the world.
std::unique_ptr<World> make_cpu_world(const Model& model, const WorldConfig& config);
// The same with weights from any origin, which outlive the world.
std::unique_ptr<World> make_cpu_world(WeightOf weight, const WorldConfig& config);

// The source of GPU weights; the named objects outlive the weights.
struct WeightOrigin {
  WeightOf weight;
  const RandomWeights* random = nullptr;  // if set: made on the device in place of copies
};

// Ranks on this machine's GPUs, over the peer fabric. Fails with kUnsupported in a build without
// CUDA, with kResource for too few GPUs or a missing path between two GPUs.
std::unique_ptr<World> make_cuda_world(const Model& model, const WorldConfig& config,
                                       const DeviceSpec& device);
std::unique_ptr<World> make_cuda_world(const WeightOrigin& origin, const WorldConfig& config,
                                       const DeviceSpec& device);

// GPUs that this build and machine can use.
int usable_gpus();

// Memory of a GPU of this machine, in bytes. Fails with kUnsupported or kResource without the GPU.
struct GpuMemory {
  int64_t free = 0;
  int64_t total = 0;
};
GpuMemory gpu_memory(int id);

// The maker's name for a GPU of this machine: "NVIDIA H200". Fails with kUnsupported or kResource
// without the GPU.
std::string gpu_name(int id);

// The GPU's computing kernels, for plans before a world exists. Fails likewise.
std::unique_ptr<KernelCatalog> kernels_of_gpu(int id);

}  // namespace braid
