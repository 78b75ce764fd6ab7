#pragma once

#include <cstdint>

#include "braid/kernels/cuda/host_device.h"
#include "braid/kernels/cuda/relay/relay_config.h"

// What a relay's CTAs do one after the other, as they read it from device memory. A step's input is
// the output of the step before it, word by word, as it is written, or where ranks share the layers
// the sum of what all of them wrote; the first step is a norm of a row in memory, the last ones may
// be parts of one long linear in f32. Once the launch has ended what a step made lies in memory,
// too, unless the plan gave its place to a later step.
namespace braid::cuda {

// [0, total) dealt to `parts` in ranges that follow each other.
struct RelayShares {
  int32_t each;
  int32_t more;  // parts that have one more: the first ones

  RelayShares() = default;
  BRAID_HOST_DEVICE RelayShares(int32_t total, int32_t parts)
      : each(total / parts), more(total - each * parts) {}
  BRAID_HOST_DEVICE int32_t begin(int32_t part) const {
    return part * each + (part < more ? part : more);
  }
  BRAID_HOST_DEVICE int32_t end(int32_t part) const { return begin(part + 1); }
  BRAID_HOST_DEVICE int32_t owner(int32_t i) const {
    const int32_t large = more * (each + 1);
    return i < large ? i / (each + 1) : more + (i - large) / each;
  }
};

// How a weight's rows come as tiles: slot i has chunk i % chunks of tile i / chunks. A row's part
// is at a multiple of `stride`, from the multiple of 16 bytes on before which it does not begin.
struct RelayTiles {
  int32_t row_bytes;
  int32_t chunk_bytes;  // of a row; its last chunk may be short
  int32_t chunk_elems;
  int32_t chunks;  // of a row
  int32_t stride;
  bool boxed;  // a tile's chunk is one copy, else each row's: rows begin between multiples of 16
};

// The least time for as many rows in a CTA.
RelayTiles relay_tiles(DType dtype, int32_t k, int32_t rows, bool boxed);

// How a linear is dealt to CTAs and to a CTA's warps: worked out on the host, as a CTA has no time.
struct RelayCut {
  RelayShares pairs;              // of outputs
  int32_t before[kRelayWeights];  // outputs of the weights before; of a gated pair none
  RelayShares x_pairs;            // that each writes to memory
  int32_t rows_on;                // from a warp's slot to its next: rows and bytes
  int32_t bytes_on;
  float rows_a_byte;
  RelayTiles tiles[kRelayWeights];  // of blocks
};

// y_i = x W_i^T + b_i for up to three weights, or y_0 = act(x W_0^T + b_0) * (x W_1^T + b_1). With
// a norm x is s / sqrt(mean(s^2) + eps) * norm_w: of the first step s = a, else s is that of the
// normed step before plus what the step before made, on this rank or, `summed`, on all of them.
struct RelayLinear {
  const uint8_t* w[kRelayWeights];   // dtype [n, k], rows side by side
  const void* map[kRelayWeights];    // CUtensorMap of w where its tiles are boxed
  const float* bias[kRelayWeights];  // [n] or null
  void* y[kRelayWeights];            // bf16 [n], or f32
  DType dtype[kRelayWeights] = {DType::bf16, DType::bf16, DType::bf16};  // or all are blocks
  int32_t n[kRelayWeights];
  int32_t k;
  int32_t units;  // rows of all weights, or pairs of a gate's
  bool gated;
  bool gelu;
  bool normed;
  bool again;  // x is that of the step before, whose words nobody takes
  bool f32;    // y, which goes to memory alone
  bool summed;
  bool shared;          // y goes to all ranks, which add it up
  const float* a;       // [k] of the first step, else null
  const float* norm_w;  // [k]
  float* sum;           // [k] receives s, or null; its memory is not that of y
  void* x;              // bf16 [k] receives x, or null
  float eps;
  RelayCut cut;

  BRAID_HOST_DEVICE bool tiled() const { return dtype[0] != DType::bf16; }
};

// q, k and v of one token come from the step before. Heads of q and k are normed where there is a
// norm, turned, k and v written to the cache, and q attends to all keys of its sequence.
struct RelayAttention {
  const int32_t* position;    // [1]
  const int32_t* slot;        // [1]: where k and v go; outside of the cache: nowhere
  const int32_t* kv_len;      // [1]: keys, the new one included
  const int32_t* page_table;  // [pages]
  const uint64_t* turns;      // [pairs]
  const float* q_norm;        // [D] or null
  const float* k_norm;
  void* cache_k;  // bf16 [slots, kv_heads, D]
  void* cache_v;
  void* q;            // bf16 [heads, D] receives q as it attends
  void* out;          // bf16 [heads, D]
  const void* k_map;  // CUtensorMap of the cache, by 64 elements: relay_box keys of a head
  const void* v_map;
  int32_t kv_heads;
  int32_t group;
  int32_t pairs;
  int32_t page_size;
  int32_t num_slots;
  int32_t window;  // 0: none
  float factor;    // of cos and sin
  float scale;
  float eps;
  bool interleaved;
};

// What a CTA makes of a linear: outputs [begin, end).
struct RelayOutputs {
  int32_t begin;
  int32_t end;
  BRAID_HOST_DEVICE RelayOutputs(const RelayCut& cut, int32_t cta)
      : begin(2 * cut.pairs.begin(cta)), end(2 * cut.pairs.end(cta)) {}
  BRAID_HOST_DEVICE int32_t count() const { return end - begin; }
};

// The rows of weight `part` that it reads for them: perhaps none.
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
  // Rows lie side by side, and come in slots that do not ask where one ends.
  BRAID_HOST_DEVICE int32_t slots(int32_t k) const {
    return (count * 2 * k + kRelaySlotBytes - 1) / kRelaySlotBytes;
  }
  // The last bits of where the first one begins.
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

// The keys that a query of one token sees, in units of `unit` keys of one KV head, dealt to CTAs.
struct RelayKeys {
  int32_t length;
  int32_t first;       // key that is seen
  int32_t first_unit;  // of a head
  int32_t units;       // of a head, at least one
  RelayShares shares;  // of the units of all heads

  BRAID_HOST_DEVICE RelayKeys(int32_t kv_len, int32_t window, int32_t kv_heads, int32_t unit,
                              int32_t ctas) {
    length = kv_len;
    first = window > 0 && kv_len > window ? kv_len - window : 0;
    first_unit = first / unit;
    units = (kv_len + unit - 1) / unit - first_unit;
    if (units < 1) units = 1;
    shares = RelayShares(kv_heads * units, ctas);
  }
};

}  // namespace braid::cuda
