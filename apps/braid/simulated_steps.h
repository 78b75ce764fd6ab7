#pragma once

#include "braid/step_bench.h"

namespace braid::app {

// Prints simulated times of a family's steps on the place's ranks, as a table or as JSON. Programs,
// plans and prices are those of `--sp auto`; each row has its best degrees for each size, but where
// a figure wants others.
void print_simulated(const StepFamily& family, const StepBenchOptions& options,
                     const BenchPlace& place);

}  // namespace braid::app
