#pragma once

#include "braid/kernels/cuda/fused_attention/batch_layout.h"
#include "braid/kernels/cuda/fused_attention/device/fused_ring.cuh"

// For several tokens: a CTA's reads in order, and the warps that bring the data.
namespace braid::cuda {

__device__ inline FusedBatchShape batch_shape(const FusedArgs& a, int head_dim) {
  const Shares head(fused_head_tiles(a.group, head_dim), a.cluster * a.parts);
  const int tiles = (a.outputs + kFusedTileRows - 1) / kFusedTileRows;
  const Shares out(tiles, gridDim.x);
  const int head_tiles = head.each + (head.more > 0 ? 1 : 0);
  const int out_tiles = out.each + (out.more > 0 ? 1 : 0);
  return {.slots = a.slots,
          .cluster = a.cluster,
          .tokens = a.tokens,
          .each = a.each,
          .heads = a.heads,
          .x_elems = a.x_elems,
          .head_rows = head_tiles * kFusedTileRows,
          .tiles = max(head_tiles, out_tiles),
          .group = a.group,
          .head_dim = head_dim};
}

// Fills the table of live tokens, with a single warp. A token's sequence may have other tokens.
__device__ inline void put_tokens(const FusedArgs& a, int live, int unit, FusedToken* table) {
  const int lane = threadIdx.x % 32;
  const int sequences = static_cast<int>(__ldg(a.sequences));
  FusedToken t{};
  int units = 0;
  if (lane < live) {
#pragma unroll
    for (int s = 1; s < kFusedMaxTokens; ++s) {
      if (s < sequences && __ldg(a.q_start + s) <= lane) t.sequence = s;
    }
    const int begin = __ldg(a.q_start + t.sequence), end = __ldg(a.q_start + t.sequence + 1);
    t.length = max(__ldg(a.kv_len + t.sequence) - (end - 1 - lane), 0);
    t.fresh = min(lane - begin + 1, t.length);
    t.first = a.window > 0 && t.length > a.window ? t.length - a.window : 0;
    t.first_unit = t.first / unit;
    units = (t.length + unit - 1) / unit - t.first_unit;
  }
  int sum = units;
#pragma unroll
  for (int d = 1; d < 32; d *= 2) {
    const int other = __shfl_up_sync(0xffffffff, sum, d);
    if (lane >= d) sum += other;
  }
  t.base = sum - units;
  if (lane <= live) table[lane] = t;
}

// A CTA's reads, in slots: tiles of q, k and v, then all tokens' keys, then tiles of o.
struct FusedBatchPlan {
  FusedPlace place;
  Shares head_tiles;  // dealt to the head's CTAs
  int num_tiles;
  int chunks;      // of a tile
  int first_unit;  // of the head's keys
  int first_out;   // tile of o
  int num_out;     // tiles
  int out_chunks;
  FusedParts rows;
  FusedParts keys;
  FusedParts out;

  __device__ FusedBatchPlan(const FusedArgs& a, int head_dim, const FusedToken* tokens, int live)
      : FusedBatchPlan(a, head_dim,
                       Shares(fused_head_tiles(a.group, head_dim), a.cluster * a.parts),
                       Shares(tokens[live].base, a.cluster * a.parts),
                       Shares((a.outputs + kFusedTileRows - 1) / kFusedTileRows, gridDim.x)) {}

  // The token that owns a unit of keys.
  __device__ static int token_of(const FusedToken* tokens, int unit) {
    int t = 0;
    while (unit >= tokens[t + 1].base) ++t;
    return t;
  }

 private:
  __device__ FusedBatchPlan(const FusedArgs& a, int head_dim, Shares of_rows, Shares of_keys,
                            Shares of_out)
      : place(a),
        head_tiles(of_rows),
        num_tiles(of_rows.end(place.member) - of_rows.begin(place.member)),
        chunks((a.width + kFusedChunk - 1) / kFusedChunk),
        first_unit(of_keys.begin(place.member)),
        first_out(of_out.begin(blockIdx.x)),
        num_out(of_out.end(blockIdx.x) - first_out),
        out_chunks((a.kv_heads * a.group * head_dim + kFusedChunk - 1) / kFusedChunk),
        rows(0, num_tiles * chunks),
        keys(rows.end(), of_keys.end(place.member) - first_unit),
        out(keys.end(), num_out * out_chunks) {}
};

// A warp that copies ahead of the computation, and waits for free slots only.
template <int kD>
class FusedBatchProducer {
 public:
  __device__ FusedBatchProducer(const FusedArgs& a, uint8_t* smem, const FusedBatchLayout& layout,
                                const FusedBatchPlan& plan, int index)
      : a_(a),
        plan_(plan),
        tokens_(reinterpret_cast<const FusedToken*>(smem + layout.tokens)),
        feed_(smem + layout.ring, reinterpret_cast<uint64_t*>(smem + layout.barriers), a.slots,
              reinterpret_cast<const int*>(smem + layout.flow), index),
        once_(ptx::evict_first_policy()) {}

  __device__ void run() {
    const bool issues = ptx::elect_one();
    if (issues) load_head();
    feed_.share(issues);
    load_keys(issues);
    if (issues) load_out();
    __syncwarp();
  }

 private:
  __device__ void copy_tile(const CUtensorMap* map, int row, int chunk) {
    uint8_t* to = feed_.take(kFusedSlotBytes);
    ptx::tma_load_3d(to, map, feed_.full(), 0, row, chunk * (kFusedChunk / 64), once_);
    feed_.next();
  }

  // A tile has rows of a single weight.
  __device__ void load_head() {
#pragma unroll 1
    while (feed_.at() < plan_.rows.end()) {
      const int unit = plan_.rows.unit(feed_.at()), tile = unit / plan_.chunks;
      const int in_head = (plan_.head_tiles.begin(plan_.place.member) + tile) * kFusedTileRows;
      const FusedHeadRow row(plan_.place.head, in_head, a_.group * kD, kD);
      copy_tile(&a_.w_map[row.which], row.row, unit - tile * plan_.chunks);
    }
  }

  __device__ void load_out() {
#pragma unroll 1
    while (feed_.at() < plan_.out.end()) {
      const int unit = plan_.out.unit(feed_.at()), tile = unit / plan_.out_chunks;
      copy_tile(&a_.w_map[3], (plan_.first_out + tile) * kFusedTileRows,
                unit - tile * plan_.out_chunks);
    }
  }

  __device__ void load_keys(bool issues) {
    constexpr int kKeys = relay_keys(kD);
    feed_keys(feed_, a_, {kKeys, kD, 0, plan_.place.head * (kD / 64)}, plan_.keys.end(), once_,
              issues, [&](int slot, int key) {
                const int unit = plan_.first_unit + plan_.keys.unit(slot);
                const FusedToken& t = tokens_[FusedBatchPlan::token_of(tokens_, unit)];
                return cache_row(a_, a_.page_table + t.sequence * a_.table_stride,
                                 (t.first_unit + unit - t.base) * kKeys + key, t.length);
              });
  }

  const FusedArgs& a_;
  const FusedBatchPlan& plan_;
  const FusedToken* const tokens_;
  FusedFeed feed_;
  const uint64_t once_;
};

}  // namespace braid::cuda
