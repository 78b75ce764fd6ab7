#pragma once

#include <memory>

#include "braid/engine/runner.h"
#include "braid/engine/step_planner.h"

namespace braid {

// Machines, devices and links of a runner's ranks.
Topology topology_of(const RunnerConfig& config);

// How ranks may divide sequences: empty where they do not. Fails with kInvalidArgument where no
// mesh is legal, with kUnsupported for approximations that such ranks cannot have.
std::vector<SequenceMesh> meshes_of(const Model& model, const RunnerConfig& config);

// The planner of a runner's steps: everything between a batch and bound launches. Fails as Runner
// does. `model` and `world` outlive the planner.
std::unique_ptr<StepPlanner> make_step_planner(const Model& model, const RunnerConfig& config,
                                               const std::vector<SequenceMesh>& meshes,
                                               World& world);

}  // namespace braid
