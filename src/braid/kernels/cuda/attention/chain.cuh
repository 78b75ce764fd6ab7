#pragma once

#include "braid/kernels/cuda/attention/hopper_launch.h"
#include "braid/kernels/cuda/ptx/gpu.h"

// Calls of a chain run into each other: each counts itself at every unit of 64 rows that it is done
// with, and the next one waits for the units whose state it takes, not for the whole grid.
namespace braid::cuda {

// Whether this call begins while the one before it in its chain still runs.
template <class Traits>
__device__ inline bool follows(const HopperParams& p) {
  return Traits::kStaged && p.ready_count > 0;
}

// The place of an item's first unit. A chain has one Q segment.
__device__ inline int ready_slot(const AttentionPlan& plan, const WorkItem& item) {
  return (item.b * plan.num_head_items + item.head / plan.pack) * plan.run_units[0] + item.unit;
}

// What the warp wrote of the unit is there. By one lane, after __syncwarp.
__device__ inline void count_ready(const HopperParams& p, int slot) {
  ptx::add_release_gpu(p.ready + slot, 1);
}

}  // namespace braid::cuda
