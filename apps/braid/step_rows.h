#pragma once

#include <string>
#include <vector>

#include "braid/engine/diffusion/step_prices.h"
#include "braid/step_bench.h"

namespace braid::app {

// The meshes of a row: one, or with Degrees::each all legal. `prices` finds the best degrees, by a
// part of the step with size i; without prices the rule decides. Fails with kInvalidArgument,
// giving the reason, without a legal mesh.
std::vector<SequenceMesh> meshes_of(const StepRow& row, Degrees degrees, const StepFamily& family,
                                    size_t i, const SpRequest& request, const Topology& topology,
                                    const StepPrices* prices);

// Whether `error` says that a row cannot be: among many rows, such rows are named below the table.
bool is_impossible(const StepBenchOptions& options, const Error& error);

// A line on the least time that ranks can have, a share of one rank's. `first_ms`: the first row's,
// called `first`; `most`: torus times the first.
std::string bound_line(const std::string& size, double alone_ms, bool simulated, int ranks,
                       double first_ms, const std::string& first, double most);

// "Figure 7 of StreamFusion shows ...; there, ...".
std::string paper_line(int number, const Figure& figure);

}  // namespace braid::app
