#pragma once

#include <cstdint>

#include "braid/kernels/cuda/host_device.h"

// What a relay's CTAs do one after the other, as they read it from device memory. A step's input is
// the output of the step before it, word by word, as it is written, or where ranks share the layers
// the sum of what all of them wrote; the first step is a norm of a row in memory. Once the launch has ended what a step made lies in memory, too, unless the plan
// gave its place to a later step.
namespace braid::cuda {

// y_i = x W_i^T + b_i for up to three weights, or y_0 = act(x W_0^T + b_0) * (x W_1^T + b_1). With
// a norm x is s / sqrt(mean(s^2) + eps) * norm_w: of the first step s = a, else s is that of the
// normed step before plus what the step before made, on this rank or, `summed`, on all of them.
struct RelayLinear {
  const uint8_t* w[3];   // bf16 [n, k], rows side by side
  const float* bias[3];  // [n] or null
  void* y[3];            // bf16 [n]
  int32_t n[3];
  int32_t k;
  int32_t units;  // rows of all weights, or pairs of a gate's
  bool gated;
  bool gelu;
  bool normed;
  bool summed;
  bool shared;  // y goes to all ranks, which add it up
  const float* a;       // [k] of the first step, else null
  const float* norm_w;  // [k]
  float* sum;           // [k] receives s, or null
  void* x;              // bf16 [k] receives x, or null
  float eps;
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
  const void* k_map;  // CUtensorMap of the cache: boxes of relay_box keys of a head
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

struct alignas(16) RelayStep {
  bool attends = false;
  union {
    RelayLinear linear;
    RelayAttention attention;
  };
  RelayStep() : linear() {}
};

// [0, total) cut into `parts` ranges whose lengths differ by one at most; total * parts < 2^32.
BRAID_HOST_DEVICE int32_t relay_begin(uint32_t total, uint32_t part, uint32_t parts) {
  return static_cast<int32_t>(total * part / parts);
}
BRAID_HOST_DEVICE int32_t relay_owner(uint32_t total, uint32_t i, uint32_t parts) {
  return static_cast<int32_t>(((i + 1) * parts - 1) / total);
}

// The keys that a query of one token sees, in units of `unit` keys of one KV head, dealt to CTAs;
// with fewer units than CTAs the first ones have one each.
struct RelayKeys {
  int32_t length;
  int32_t first;       // key that is seen
  int32_t first_unit;  // of a head
  int32_t units;       // of a head, at least one
  int32_t total;
  int32_t ctas;  // that have any

  BRAID_HOST_DEVICE RelayKeys(int32_t kv_len, int32_t window, int32_t kv_heads, int32_t unit,
                              int32_t of_ctas) {
    length = kv_len;
    first = window > 0 && kv_len > window ? kv_len - window : 0;
    first_unit = first / unit;
    units = (kv_len + unit - 1) / unit - first_unit;
    if (units < 1) units = 1;
    total = kv_heads * units;
    ctas = total < of_ctas ? total : of_ctas;
  }
  BRAID_HOST_DEVICE int32_t begin(int32_t cta) const {
    return relay_begin(total, cta < ctas ? cta : ctas, ctas);
  }
  BRAID_HOST_DEVICE int32_t owner(int32_t i) const { return relay_owner(total, i, ctas); }
};

}  // namespace braid::cuda
