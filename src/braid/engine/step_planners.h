#pragma once

#include <memory>

#include "braid/engine/runner.h"
#include "braid/engine/step_planner.h"

namespace braid {

// Machines, devices and links of a runner's ranks.
Topology topology_of(const RunnerConfig& config);

// Fails with kInvalidArgument, naming the option, if a topology's ranks have no such levels of far
// keys, or divide tokens in another mode than ring.
void check_keep(const Thinning& thinning, const std::optional<SequenceParallel>& sp,
                const Topology& topology);

// Meshes that may divide sequences, by ranks, the last over all; empty: ranks divide weights. Fails
// with kInvalidArgument without a legal mesh, with kUnsupported for approximations that the ranks
// cannot run.
std::vector<SequenceMesh> meshes_of(const Model& model, const RunnerConfig& config);

// Activations of the fullest rank in a step of `tokens` first tokens of a sequence, in bytes, over
// the meshes with all ranks. `kernels` are the devices' computing ones; null: none waits inside.
int64_t prompt_step_bytes(const Model& model, const RunnerConfig& config, int64_t tokens,
                          const KernelCatalog* kernels);

// Groups for these meshes, which come by ranks and divide the first ones of `ranks`. All ranks make
// groups, so that those behind the first repeat a mesh; where it does not divide `ranks`, a made
// mesh counts ranks behind them. A further mesh for each number of ranks has these as the world of
// their steps.
std::vector<Mesh> over_all(const std::vector<SequenceMesh>& meshes, int ranks);

// The planner of a runner's steps: everything between a batch and bound launches. Fails as Runner
// does. `model` and `world` outlive the planner.
std::unique_ptr<StepPlanner> make_step_planner(const Model& model, const RunnerConfig& config,
                                               const std::vector<SequenceMesh>& meshes,
                                               World& world);

}  // namespace braid
