#pragma once

#include <cuda.h>

#include "braid/kernels/cuda/linear/device/panel_linear.h"

namespace braid::cuda {

// The copy engine's maps for a call's operands. A box has a panel's rows.
struct PanelMaps {
  CUtensorMap w[3];  // 16-bit: [K / 64, rows, 64] in boxes of all slabs; else [rows, bytes / 2]
  CUtensorMap x;     // [K / 64, tokens, 64] in boxes of a stage
};

// Arguments of a kernel launch.
struct PanelArgs {
  PanelMaps maps;
  SkinnyParams p;
  PanelConfig config;
  PanelSmem smem;
  int clusters = 0;
  int panels[3] = {};  // per part
  int k_stages = 0;    // over all of K
  bool gelu = false;   // tanh form; else silu
};

// Host code. Fails with kUnsupported if the driver has no such maps.
void make_panel_maps(const SkinnyParams& params, const PanelConfig& config, PanelMaps& maps);

// Launches the instance for the dtype and args.p.m, defined in a file per instance.
template <DType kType>
void launch_panel(const PanelArgs& args, const LaunchContext& context);
template <DType kType>
void allow_panel_smem();

}  // namespace braid::cuda
