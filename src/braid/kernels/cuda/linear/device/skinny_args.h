#pragma once

#include "braid/kernels/cuda/linear/device/skinny.h"

namespace braid::cuda {

// Arguments of a kernel launch.
struct SkinnyArgs {
  SkinnyParams p;  // parts share a dtype
  SkinnySmem smem;
  int tokens = 0;     // in this launch
  int row_begin = 0;  // first token
  int units = 0;      // rows over all parts; pairs of rows when gated
  int cluster = 1;
  int k_per_cta = 0;
  int chunk = 0;
  int stages = 0;
  bool split_k = false;
  bool bulk = false;
  bool aligned = false;
  bool gelu = false;  // tanh form; else silu
};

// Launches the instance for the dtype, defined in a file per dtype.
template <DType kType>
void launch_skinny(const SkinnyArgs& args, int clusters, const LaunchContext& context);
template <DType kType>
void allow_skinny_smem();

}  // namespace braid::cuda
