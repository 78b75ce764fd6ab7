#pragma once

#include <cstdint>
#include <string>

#include "braid/tensor/dtype.h"

// Division of decode's skinny product y = x W^T: shape + device -> config. Pure host code.
//
// A cluster of CTAs owns a range of weight rows, in tiles of 16 rows; the CTAs split K, and each
// keeps its slice of x in shared memory. Copies of 16 rows x `chunk` elements fill a ring of
// stages. Either the eight warps split the K of each stage and add up their parts, or each stage
// belongs to a single warp with whole tiles, which adds up with the same warp of the cluster's
// other CTAs.
namespace braid::cuda {

constexpr int kSkinnyTileRows = 16;
constexpr int kSkinnyWarps = 8;
constexpr int kSkinnyMaxTokens = 8;  // in a launch
constexpr int kSkinnyMinStages = 4;  // filling warps take turns
constexpr int kSkinnyMaxStages = 32;

struct SkinnyShape {
  DType dtype = DType::bf16;  // the weights'
  int64_t k = 0;
  int64_t columns = 0;  // columns of y over all parts, or of the gated y
  int m = 1;            // capacity in tokens
  bool gated = false;
  bool bulk = true;     // rows suit the copy engine
  bool aligned = true;  // every row's chunks start at multiples of 16 bytes
};

struct SkinnyDevice {
  int compute_capability = 90;  // 10 * major + minor; code for Hopper runs on no other
  int num_sms = 132;
  int smem_per_cta = 232448;
  int smem_per_sm = 233472;
};

struct SkinnyConfig {
  bool bulk = true;     // a ring filled by the copy engine; else one stage and plain loads
  bool split_k = true;  // the warps of a CTA split K; else tiles
  int tokens = 1;       // in a launch; more take several launches, reading weights again
  int cluster = 1;      // CTAs that split K: 1, 2, 4 or 8; 1 if the warps split K
  int clusters = 132;   // sharing the rows
  int chunk = 512;      // elements of K per stage, a multiple of 256
  int stages = 5;       // of the ring; 1 with plain loads, whole eights if a stage has a warp
  bool operator==(const SkinnyConfig&) const = default;
};

// Byte offsets into a CTA's shared memory; the ring is at 0.
struct SkinnySmem {
  int pitch = 0;     // bytes per row in a stage
  int x = 0;         // bf16 [steps, tokens, 32], permuted
  int sums = 0;      // f32 [steps, groups, tokens], of x over each group with a scale
  int partials = 0;  // f32 [2, warps, 8, 8, 2] if the warps split K
  int exchange = 0;  // f32 [warps, cluster, share of a tile] in a cluster
  int squares = 0;   // f32 [warps, 8], for the norm
  int barriers = 0;
  int total = 0;
};

// Granularity, in elements, at which CTAs cut K: a block of 256, or a step of 32.
int skinny_granule(DType dtype);
// Groups with a separate scale in a step of 32 elements: 0 (float types), 1 or 2.
int skinny_groups(DType dtype);
// Most elements of K for a CTA in the cluster.
int64_t skinny_k_per_cta(const SkinnyShape& shape, int cluster);

SkinnySmem skinny_smem(const SkinnyShape& shape, const SkinnyConfig& config);

// Whether the kernel can run `config` on that device.
bool skinny_fits(const SkinnyShape& shape, const SkinnyConfig& config, const SkinnyDevice& device);

// Two CTAs share an SM if possible: the next launch fills its ring while this launch drains.
SkinnyConfig choose_skinny(const SkinnyShape& shape, const SkinnyDevice& device);

// "split k, 132 ctas, 5 x 512, 1 token", "split tiles, 16 clusters of 8, 8 x 256, 8 tokens"
std::string to_string(const SkinnyConfig& config);

}  // namespace braid::cuda
