#pragma once

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
  // The newest key, then the newest value, of an item; only on the CTA with these rows.
  __device__ __nv_bfloat16* fresh(const RelayAttention& s, int item) const {
    return at(RelayAttentionLayout(kD, s.group).fresh) + 2 * item * kD;
  }

  // Receives q for the heads of units [begin, end), and the newest key and value if [begin, end)
  // includes both; stores the key and value in the cache, too.
  __device__ void receive(const RelayAttention& s, const RelayPlace& place, const RelayKeys& keys,
                          int begin, int end, int head, int items) {
    for (int i = thread_; i < s.pairs; i += kRelayThreads) {
      // As rope_append: the product modulo 2^64 is the angle modulo one turn.
      const uint64_t angle = static_cast<uint64_t>(int64_t{__ldg(s.position)}) * __ldg(s.turns + i);
      float sin, cos;
      sincospif(__int2float_rn(static_cast<int>(angle >> 32)) * 0x1p-31f, &sin, &cos);
      turns_[i] = cos * s.factor;
      turns_[64 + i] = sin * s.factor;
    }
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
      turn(s, raw,
           is_q   ? s.q_norm
           : is_v ? nullptr
                  : s.k_norm,
           is_v ? 0 : s.pairs, own, writes ? memory : nullptr);
    }
    sync_workers();
  }

 private:
  __device__ __nv_bfloat16* at(int bytes) const {
    return reinterpret_cast<__nv_bfloat16*>(base_ + bytes);
  }

  // Waits for a row of the step before, with one warp.
  __device__ void wait_row(const uint2* words, uint32_t tag, float* raw) const {
    const int i = lane_ % (kD / 4);
    uint4 v[1];
    wait_words(v, tag, [&](int) { return reinterpret_cast<const uint4*>(words) + i; });
    float4 x{};
    add_words(x, v[0]);
    reinterpret_cast<float4*>(raw)[i] = x;
    __syncwarp();
  }

  // Norms a head, rotates the head by its position, and rounds to bf16.
  __device__ __forceinline__ void turn(const RelayAttention& s, const float* raw, const float* norm,
                                       int pairs, __nv_bfloat16* own, __nv_bfloat16* memory) const {
    float scale = 1;
    if (norm != nullptr) {
      float sum = 0;
#pragma unroll
      for (int e = 0; e < kD; e += 32) sum += raw[e + lane_] * raw[e + lane_];
#pragma unroll
      for (int mask = 16; mask > 0; mask /= 2) sum += __shfl_xor_sync(0xffffffff, sum, mask);
      scale = rsqrtf(sum / kD + s.eps);
    }
    const auto normed = [&](int e) {
      return norm == nullptr ? raw[e] : raw[e] * (scale * __ldg(norm + e));
    };
#pragma unroll 1
    for (int e = lane_; e < kD; e += 32) {
      float x = normed(e);
      if (e < 2 * pairs) {
        const bool second = s.interleaved ? e % 2 == 1 : e >= pairs;
        const int step = s.interleaved ? 1 : pairs;
        const int pair = s.interleaved ? e / 2 : second ? e - pairs : e;
        const float other = normed(second ? e - step : e + step);
        const float cos = turns_[pair], sin = turns_[64 + pair];
        x = second ? other * sin + x * cos : x * cos - other * sin;
      }
      own[e] = __float2bfloat16_rn(x);
      if (memory != nullptr) memory[e] = own[e];
    }
  }

  const int thread_;
  const int warp_;
  const int lane_;
  uint8_t* base_;  // RelayAttentionLayout
  float* turns_;   // [2, 64]
};

}  // namespace braid::cuda
