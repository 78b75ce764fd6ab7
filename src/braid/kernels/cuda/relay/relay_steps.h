#pragma once

#include <cstdint>

#include "braid/kernels/cuda/host_device.h"
#include "braid/kernels/cuda/relay/relay_config.h"
#include "braid/kernels/cuda/shares.h"

// The steps of a relay's CTAs, in device memory. A step's input is the output of the step
// before, word by word as written; with layers over ranks, the sum of all ranks' outputs. The
// first step is a norm of a row in memory; the last steps may be parts of a long linear in f32.
// After the launch every step's output lies in memory, too, unless the plan gave the place to a
// later step.
namespace braid::cuda {

// A weight's rows as tiles: slot i has chunk i % chunks of tile i / chunks. A row's part lies at a
// multiple of `stride`, plus the row's distance from a multiple of 16 bytes.
struct RelayTiles {
  int32_t row_bytes;
  int32_t chunk_bytes;  // per row; the last chunk may be short
  int32_t chunk_elems;
  int32_t chunks;  // per row
  int32_t stride;
  bool boxed;  // one copy brings a tile's chunk; otherwise a copy per row, for unaligned rows
};

// The least time for as many rows in a CTA.
RelayTiles relay_tiles(DType dtype, int32_t k, int32_t rows, bool boxed);

// How a linear is dealt to CTAs and to a CTA's warps: worked out on the host, as a CTA has no time.
struct RelayCut {
  Shares pairs;                   // of outputs
  int32_t before[kRelayWeights];  // outputs of earlier weights; none in a gated pair
  Shares x_pairs;                 // pairs each CTA writes to memory
  int32_t rows_on;                // from a warp's slot to the warp's next slot: rows and bytes
  int32_t bytes_on;
  float rows_a_byte;
  RelayTiles tiles[kRelayWeights];  // of blocks
};

// y_i = x W_i^T + b_i for up to three weights, or y_0 = act(x W_0^T + b_0) * (x W_1^T + b_1). With
// a norm, x = s / sqrt(mean(s^2) + eps) * norm_w. In the first step s = a; in later steps s is the
// previous norm's s plus the previous step's output, on this rank or, with `summed`, on all ranks.
struct RelayLinear {
  const uint8_t* w[kRelayWeights];   // dtype [n, k], rows side by side
  const void* map[kRelayWeights];    // CUtensorMap of w for boxed tiles
  const float* bias[kRelayWeights];  // [n] or null
  void* y[kRelayWeights];            // bf16 [n], or f32
  DType dtype[kRelayWeights] = {DType::bf16, DType::bf16, DType::bf16};  // or all are blocks
  int32_t n[kRelayWeights];
  int32_t k;
  int32_t units;  // rows of all weights, or pairs in a gated product
  bool gated;
  bool gelu;
  bool normed;
  bool again;  // x is the previous step's x, and nobody takes this step's words
  bool f32;    // y is f32 and goes to memory alone
  bool summed;
  bool shared;          // y goes to all ranks, which sum y
  const float* a;       // [k] in the first step, otherwise null
  const float* norm_w;  // [k]
  float* sum;           // [k] receives s, or null; not in y's memory
  void* x;              // bf16 [k] receives x, or null
  float eps;
  RelayCut cut;

  BRAID_HOST_DEVICE bool tiled() const { return dtype[0] != DType::bf16; }
};

// The step before makes q, k and v of one token. Heads of q and k are normed (with a norm) and
// rotated, k and v go to the cache, and q attends to all keys of the sequence.
struct RelayAttention {
  const int32_t* position;    // [1]
  const int32_t* slot;        // [1]: place of k and v; outside the cache: nowhere
  const int32_t* kv_len;      // [1]: keys, including the new key
  const int32_t* page_table;  // [pages]
  const uint64_t* turns;      // [pairs]
  const float* q_norm;        // [D] or null
  const float* k_norm;
  void* cache_k;  // bf16 [slots, kv_heads, D]
  void* cache_v;
  void* q;            // bf16 [heads, D] receives the rotated q
  void* out;          // bf16 [heads, D]
  const void* k_map;  // the cache's CUtensorMap, in 64 elements: relay_box keys of a head
  const void* v_map;
  int32_t kv_heads;
  int32_t group;
  int32_t pairs;
  int32_t page_size;
  int32_t num_slots;
  int32_t window;  // 0: none
  float factor;    // for cos and sin
  float scale;
  float eps;
  bool interleaved;
};

// A CTA's outputs of a linear: [begin, end).
struct RelayOutputs {
  int32_t begin;
  int32_t end;
  BRAID_HOST_DEVICE RelayOutputs(const RelayCut& cut, int32_t cta)
      : begin(2 * cut.pairs.begin(cta)), end(2 * cut.pairs.end(cta)) {}
  BRAID_HOST_DEVICE int32_t count() const { return end - begin; }
};

// The rows of weight `part` behind a CTA's outputs; may be empty.
struct RelayRows {
  int32_t first;
  int32_t count;
  BRAID_HOST_DEVICE RelayRows(const RelayLinear& s, int part, const RelayOutputs& outputs) {
    const int32_t begin = outputs.begin - s.cut.before[part];
    const int32_t end = outputs.end - s.cut.before[part];
    first = begin > 0 ? begin : 0;
    count = (end < s.n[part] ? end : s.n[part]) - first;
    if (count < 0) count = 0;
  }
  // Rows lie side by side, and slots cut across row borders.
  BRAID_HOST_DEVICE int32_t slots(int32_t k) const {
    return (count * 2 * k + kRelaySlotBytes - 1) / kRelaySlotBytes;
  }
  // Low bits of the first row's address.
  BRAID_HOST_DEVICE uint32_t start(const RelayLinear& s, int part) const {
    return static_cast<uint32_t>(reinterpret_cast<uintptr_t>(s.w[part])) +
           static_cast<uint32_t>(first) * static_cast<uint32_t>(s.cut.tiles[part].row_bytes);
  }
  BRAID_HOST_DEVICE int32_t tiles() const { return (count + kRelayTileRows - 1) / kRelayTileRows; }
};

// Sets `cut` by the rest.
void cut_for(RelayLinear& s, int32_t ctas);

struct alignas(16) RelayStep {
  bool attends = false;
  union {
    RelayLinear linear;
    RelayAttention attention;
  };
  RelayStep() : linear() {}
};

// Keys visible to a token's query, in units with `unit` keys of a KV head, dealt to CTAs.
struct RelayKeys {
  int32_t length;
  int32_t first;       // first visible key
  int32_t first_unit;  // per head
  int32_t units;       // per head, at least one
  Shares shares;       // over the units of all heads

  BRAID_HOST_DEVICE RelayKeys(int32_t kv_len, int32_t window, int32_t kv_heads, int32_t unit,
                              int32_t ctas) {
    length = kv_len;
    first = window > 0 && kv_len > window ? kv_len - window : 0;
    first_unit = first / unit;
    units = (kv_len + unit - 1) / unit - first_unit;
    if (units < 1) units = 1;
    shares = Shares(kv_heads * units, ctas);
  }
};

}  // namespace braid::cuda
