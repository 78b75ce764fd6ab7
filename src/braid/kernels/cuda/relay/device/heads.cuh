#pragma once

#include "braid/kernels/cuda/relay/device/turn_head.cuh"
#include "braid/kernels/cuda/relay/device/worker.cuh"

// Rows for a CTA's attention: heads of q, and the newest key and value, as the linear before makes
// these rows.
namespace braid::cuda {

template <int kD>
class RelayHeads {
 public:
  __device__ RelayHeads(uint8_t* smem, const RelayLayout& layout)
      : thread_(threadIdx.x), warp_(thread_ / 32), lane_(thread_ % 32) {
    base_ = smem + layout.x;
    turns_ = reinterpret_cast<float*>(smem + layout.turns);
  }

  // Head g of an item.
  __device__ __nv_bfloat16* q(const RelayAttention& s, int item, int g) const {
    return at(0) + (item * s.group + g) * kD;
  }
  // An item's newest key, then its newest value; only on the CTA with these rows.
  __device__ __nv_bfloat16* fresh(const RelayAttention& s, int item) const {
    return at(RelayAttentionLayout(kD, s.group).fresh) + 2 * item * kD;
  }

  // Receives q for the heads of units [begin, end), and the newest key and value if [begin, end)
  // includes both; stores the key and value in the cache, too.
  __device__ void receive(const RelayAttention& s, const RelayPlace& place, const RelayKeys& keys,
                          int begin, int end, int head, int items) {
    put_turns(s, __ldg(s.position), turns_, thread_, kRelayThreads);
    sync_workers();
    constexpr int kHeadWords = kD / 2;
    const int q_words = s.kv_heads * s.group * kHeadWords, kv_words = s.kv_heads * kHeadWords;
    const int rows = s.group + 2;
    // A warp a row: heads of q, then k and v.
#pragma unroll 1
    for (int row = warp_; row < items * rows; row += kRelayWarps) {
      const int item = row >= rows ? 1 : 0, role = row - item * rows;
      const int kv = head + item;
      const bool is_q = role < s.group;
      if (!is_q && end < (kv + 1) * keys.units) continue;  // the newest key is another CTA's
      auto* raw =
          reinterpret_cast<float*>(base_ + RelayAttentionLayout(kD, s.group).raw) + row * kD;
      const int word = is_q ? (kv * s.group + role) * kHeadWords
                            : q_words + (role - s.group) * kv_words + kv * kHeadWords;
      wait_row(place.in + word, place.in_tag, raw);
      const bool is_v = role > s.group;
      const int slot = __ldg(s.slot);
      auto* own = is_q ? q(s, item, role) : fresh(s, item) + is_v * kD;
      // The CTA with a head's first keys writes the head's q to memory.
      const bool writes = is_q ? begin <= kv * keys.units : slot >= 0 && slot < s.num_slots;
      auto* memory = static_cast<__nv_bfloat16*>(is_q   ? s.q
                                                 : is_v ? s.cache_v
                                                        : s.cache_k) +
                     (is_q ? kv * s.group + role : int64_t{slot} * s.kv_heads + kv) * kD;
      const float* norm = is_q ? s.q_norm : is_v ? nullptr : s.k_norm;
      turn_head<kD>([&](int e) { return raw[e]; }, norm, s.eps, is_v ? 0 : s.pairs, s.interleaved,
                    turns_,
                    [&](int e, float x) {
                      own[e] = __float2bfloat16_rn(x);
                      if (writes) memory[e] = own[e];
                    });
    }
    sync_workers();
  }

 private:
  __device__ __nv_bfloat16* at(int bytes) const {
    return reinterpret_cast<__nv_bfloat16*>(base_ + bytes);
  }

  // Waits for a row from the step before, with a single warp.
  __device__ void wait_row(const uint2* words, uint32_t tag, float* raw) const {
    const int i = lane_ % (kD / 4);
    uint4 v[1];
    wait_words(v, tag, [&](int) { return reinterpret_cast<const uint4*>(words) + i; });
    float4 x{};
    add_words(x, v[0]);
    reinterpret_cast<float4*>(raw)[i] = x;
    __syncwarp();
  }

  const int thread_;
  const int warp_;
  const int lane_;
  uint8_t* base_;  // RelayAttentionLayout
  float* turns_;   // [2, 64]
};

}  // namespace braid::cuda
