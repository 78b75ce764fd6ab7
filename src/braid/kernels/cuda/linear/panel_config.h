#pragma once

#include <cstdint>
#include <string>

#include "braid/kernels/cuda/linear/skinny_config.h"
#include "braid/tensor/dtype.h"

// Division of a product for 2 to 64 tokens. A CTA has a panel: up to 16 groups with 16 weight rows
// (8 of each weight in a gated pair), over the CTA's share of K, and all tokens. The copy engine
// brings stages, all groups x some slabs of K and x's slabs, to a ring in shared memory. A
// cluster's CTAs share K and add up their parts at the end. Up to 32 tokens warps multiply (mma),
// above 32 warpgroups (wgmma). Pure host code.
namespace braid::cuda {

constexpr int kPanelWarps = 8;        // multiplying warps
constexpr int kPanelMaxGroups = 16;   // per CTA
constexpr int kPanelXSlab = 64;       // elements of x: 128 bytes, a swizzled row's width
constexpr int kPanelWarpTokens = 32;  // most tokens for warps
constexpr int kPanelMaxTokens = 64;   // above kPanelWarpTokens: bf16 weights alone
constexpr int kPanelMaxStages = 16;

// A row's share in a copy.
struct PanelSlab {
  int elems = 0;   // elements of K; 0 for dtypes outside the kernel
  int stride = 0;  // bytes from slab to slab in a row
  int pitch = 0;   // bytes in shared memory: rows of 8 in separate banks, if possible
};

constexpr PanelSlab panel_slab(DType dtype) {
  switch (dtype) {
    case DType::bf16:
    case DType::f16:
      return {64, 128, 128};  // swizzled
    case DType::q4_0:
    case DType::q4_k:
      return {256, 144, 144};
    case DType::q4_1:
      return {128, 80, 80};
    case DType::q5_0:
    case DType::q5_k:
      return {256, 176, 176};
    case DType::q5_1:
      return {128, 96, 96};
    case DType::q8_0:
      return {256, 272, 272};
    case DType::q6_k:
      return {256, 210, 240};  // begins at the multiple of 16 bytes before
    default:
      return {};
  }
}

struct PanelShape {
  DType dtype = DType::bf16;  // the weights'
  bool aligned = true;        // bf16 x, and weight rows at multiples of 16 bytes
  bool normed = false;
  int64_t k = 0;
  int64_t groups[3] = {};  // per part
  int tokens = 8;          // capacity
};

struct PanelConfig {
  int groups = 1;  // groups of a CTA, fewer at a part's end
  int split = 1;   // CTAs in a cluster that share K: 1 to 8
  int slabs = 1;   // in a stage
  int stages = 2;
  int trigger = 0;  // stages left to multiply when the next launch may begin to fill its rings
  bool operator==(const PanelConfig&) const = default;
};

// Byte offsets into a CTA's shared memory. The ring is at 0; after the ring, f32 sums [ways, 8
// tiles, pitch] take the place.
struct PanelSmem {
  int stage = 0;  // bytes: weights [slabs, rows, slab], x [K / 64, 8 tiles, 64] swizzled
  int x = 0;      // bytes of x per stage
  int pitch = 0;  // elements from token to token in the sums
  int barriers = 0;
  int total = 0;
};

// Groups of 16 rows for a part with n rows, or for a gate's n pairs.
constexpr int64_t panel_groups(int64_t n, bool gated) {
  const int rows = gated ? 8 : 16;
  return (n + rows - 1) / rows;
}

// Whether warpgroups multiply.
constexpr bool panel_wide(int tokens) {
  return tokens > kPanelWarpTokens;
}

// Warps that share the K of a stage with few groups; a warp has a group, or two above 8 groups.
// Warpgroups share no K: each has 64 rows, or twice 64.
constexpr int panel_ways(int groups, int tokens) {
  if (panel_wide(tokens)) return 1;
  return groups > 4 ? 1 : groups > 2 ? 2 : groups > 1 ? 4 : 8;
}

// Tiles of 8 tokens to multiply.
constexpr int panel_tiles(int tokens) {
  return panel_wide(tokens) ? kPanelMaxTokens / 8 : (tokens + 7) / 8;
}

PanelSmem panel_smem(const PanelShape& shape, const PanelConfig& config);

// Whether a kernel computes the shape: no f32 weights, K a multiple of 64, no norm, a Hopper GPU.
bool panel_takes(const PanelShape& shape, const SkinnyDevice& device);
// Stages over all of K.
int64_t panel_k_stages(const PanelShape& shape, int slabs);
// Whether the kernel can run `config` on `device`, for a shape that panel_takes.
bool panel_fits(const PanelShape& shape, const PanelConfig& config, const SkinnyDevice& device);

// Clusters: each has a panel's groups. No panel has groups from two parts.
int64_t panel_clusters(const PanelShape& shape, const PanelConfig& config);

// The given cut, a ring with at most `bytes`, and the longest stages that fit three times.
PanelConfig panel_cut(const PanelShape& shape, int groups, int split, int bytes);

// For a shape that panel_takes, with at least a group.
PanelConfig choose_panel(const PanelShape& shape, const SkinnyDevice& device);

std::string to_string(const PanelConfig& config);  // "panel 16 groups, k / 2, 3 x 1 slabs"

}  // namespace braid::cuda
