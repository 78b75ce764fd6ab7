#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "braid/kernels/cuda/cluster/exchange.h"
#include "braid/kernels/cuda/relay/relay_config.h"
#include "braid/tensor/dtype.h"

// Norm, q k v, rope, cache and attention of few tokens as a launch, with a cluster of CTAs for each
// KV head, with or without output projection (docs/cluster-fusion.md). Pure host code.
namespace braid::cuda {

constexpr int kFusedWarps = 8;      // multiplying warps of a CTA
constexpr int kFusedProducers = 2;  // copying warps of a CTA, in turns
constexpr int kFusedThreads = 32 * kFusedWarps;
constexpr int kFusedBlock = kFusedThreads + 32 * kFusedProducers;
constexpr int kFusedSlotBytes = kRelaySlotBytes;
constexpr int kFusedMaxTokens = 16;
constexpr int kFusedMaxGroup = 16;  // query heads of a KV head
constexpr int kFusedFewHeads = 4;   // the same for the kernel of a single token
constexpr int kFusedSetHeads = 8;   // query heads that a warp takes with one read of a key
constexpr int kFusedMaxNorm = 8192;
constexpr int kFusedMaxParts = 16;  // clusters of a KV head

enum class FusedScope { qkv, projected };  // up to attention, or with the output projection

// Division of a KV head's attention over the cluster: by keys, or by elements of all keys. Heads
// divided by elements take a sum of scores for every kFusedWarps slots of keys.
enum class FusedSplit { token, head };

// A layer's block, equal on all ranks.
struct FusedShape {
  int64_t tokens = 1;
  int64_t width = 0;  // C, the normed width
  int64_t kv_heads = 0;
  int group = 1;  // query heads of a KV head
  int head_dim = 0;
  int64_t page_size = 0;
  int64_t outputs = 0;  // M of the projection
  std::array<DType, 4> weights = {DType::bf16, DType::bf16, DType::bf16, DType::bf16};  // q k v o
  DType cache = DType::bf16;
  bool softcap = false;
  bool even_heads = true;  // no head offset: each KV head has its whole group here
  bool normed = true;      // false: the input is normed already
};

// Whether the block takes the kernel of several tokens. The other kernel is faster for a single
// token of a normed block in bf16.
bool fused_batches(const FusedShape& shape);

struct FusedDevice {
  int compute_capability = 90;
  int64_t smem_per_cta = 232448;
  // Clusters, by size, that run at once with an SM's whole shared memory; [0] unused.
  std::array<int, kMaxCluster + 1> clusters = {};
};

struct FusedConfig {
  int cluster = 0;  // CTAs that exchange on chip
  int parts = 1;    // clusters of a KV head: each has a part of the keys, and of rows of q k v
  int ctas = 0;
  int at_once = 0;  // CTAs that run at once; with a projection, or several parts, all
  FusedScope scope = FusedScope::qkv;
  ExchangePath path = ExchangePath::chip;
  FusedSplit split = FusedSplit::token;
  int each = 0;   // tokens per exchange, with the kernel for several tokens; otherwise 0
  int heads = 0;  // query heads per exchange of results, likewise; all if each > 1
  int slots = 0;  // in the ring, a multiple of kFusedWarps
  int inbox_bytes = 0;
  int shared_bytes = 0;
  int members() const { return cluster * parts; }  // CTAs of a KV head
  bool operator==(const FusedConfig&) const = default;
};

// Rows with k elements in slots: whole rows, or parts of a row.
struct FusedRows {
  int rows = 0;   // rows in a slot, a power of two, at least one
  int parts = 0;  // slots for a row, at least one
  int row_bytes = 0;
};
BRAID_HOST_DEVICE constexpr FusedRows fused_rows(int64_t k) {
  FusedRows r{1, 1, static_cast<int>(2 * k)};
  while (2 * r.rows * r.row_bytes <= kFusedSlotBytes && r.rows < 32) r.rows *= 2;
  r.parts = (r.row_bytes + kFusedSlotBytes - 1) / kFusedSlotBytes;
  return r;
}

// The reason against the block, in a line with the thing, the value and the limit; empty if the
// kernel takes the block.
std::string why_not_fused(const FusedShape& shape, FusedScope scope, const FusedDevice& device);

// The same with clusters of a given size, and so many of them for a KV head.
std::string why_not_fused(const FusedShape& shape, FusedScope scope, int cluster,
                          const FusedDevice& device, FusedSplit split = FusedSplit::token,
                          int parts = 1);

// With clusters of this size; only if why_not_fused is empty.
FusedConfig fused_config(const FusedShape& shape, FusedScope scope, ExchangePath path, int cluster,
                         const FusedDevice& device, FusedSplit split = FusedSplit::token,
                         int parts = 1);

// All fitting splits and sizes of clusters: keys divided first, the most CTAs first; then, for each
// size, the most clusters of a KV head that run at once, and `parts` such clusters.
std::vector<FusedConfig> fused_candidates(const FusedShape& shape, FusedScope scope,
                                          ExchangePath path, const FusedDevice& device,
                                          int parts = 1);

// A KV head's keys in a slot, each with as many elements as a CTA takes.
int fused_keys(const FusedShape& shape, int cluster, FusedSplit split);

// The sum of scores over a cluster with divided heads.
ExchangeDesc fused_scores(const FusedShape& shape, int cluster);

// Sums of rows, or of row parts, in shared memory: in the phase with the most sums.
int fused_sums(const FusedShape& shape, FusedScope scope, int members);

// Bytes of weights and keys that a launch reads from memory, for `context` keys per token.
int64_t fused_bytes(const FusedShape& shape, FusedScope scope, int64_t context);

std::string to_string(const FusedConfig& config);  // "fused:cluster=4,split=token,scope=qkv"

}  // namespace braid::cuda
