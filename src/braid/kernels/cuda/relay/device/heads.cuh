#pragma once

#include "braid/kernels/cuda/relay/device/worker.cuh"

// The rows with which a CTA of a relay attends: heads of q, and the newest key and value, as the
// linear before makes them.
namespace braid::cuda {

template <int kD, int kGroup>
class RelayHeads {
 public:
  __device__ RelayHeads(uint8_t* smem, const RelayLayout& layout)
      : thread_(threadIdx.x), warp_(thread_ / 32), lane_(thread_ % 32) {
    const RelayAttentionLayout at(kD, kGroup);
    uint8_t* base = smem + layout.x;
    q_ = reinterpret_cast<float*>(base + at.q);
    fresh_ = reinterpret_cast<__nv_bfloat16*>(base + at.fresh);
    raw_ = reinterpret_cast<float*>(base + at.raw);
    turns_ = reinterpret_cast<float*>(smem + layout.turns);
  }

  // Of head g of an item, times the scale in units of log2.
  __device__ const float* q(int item, int g) const { return q_ + (item * kGroup + g) * kD; }
  // The newest key and then the newest value of an item, where they are this CTA's.
  __device__ const __nv_bfloat16* fresh(int item) const { return fresh_ + 2 * item * kD; }

  // q of the heads of which this CTA has units [begin, end), and the newest key and value where
  // they are among them; these go to the cache, too.
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
      float* raw = raw_ + (item * (kGroup + 2) + role) * kD;
      const int at = is_q ? (kv * s.group + role) * kHeadWords
                          : q_words + (role - s.group) * kv_words + kv * kHeadWords;
      wait_row(place.in + at, place.in_tag, raw);
      if (is_q) {
        // The CTA that has a head's first keys writes its q to memory.
        const bool writes = begin <= kv * keys.units;
        auto* to = static_cast<__nv_bfloat16*>(s.q) + (kv * s.group + role) * kD;
        turn(s, raw, s.q_norm, s.pairs, [&](int e, __nv_bfloat16 x) {
          q_[(item * kGroup + role) * kD + e] = __bfloat162float(x) * s.scale * kLog2E;
          if (writes) to[e] = x;
        });
      } else {
        const bool is_v = role > s.group;
        const int slot = __ldg(s.slot);
        auto* cache = static_cast<__nv_bfloat16*>(is_v ? s.cache_v : s.cache_k) +
                      (int64_t{slot} * s.kv_heads + kv) * kD;
        const bool cached = slot >= 0 && slot < s.num_slots;
        turn(s, raw, is_v ? nullptr : s.k_norm, is_v ? 0 : s.pairs, [&](int e, __nv_bfloat16 x) {
          fresh_[(2 * item + is_v) * kD + e] = x;
          if (cached) cache[e] = x;
        });
      }
    }
    sync_workers();
  }

 private:
  static constexpr float kLog2E = 1.4426950408889634f;

  // A row of the step before, by one warp.
  __device__ void wait_row(const uint2* words, uint32_t tag, float* raw) const {
    constexpr int kWords = kD / 64;  // of a lane
    uint2 v[kWords];
    uint32_t tries = 0;
    bool all;
    do {
      all = true;
#pragma unroll
      for (int j = 0; j < kWords; ++j) v[j] = ptx::load_relaxed_gpu(words + lane_ + 32 * j);
#pragma unroll
      for (int j = 0; j < kWords; ++j) all = all && v[j].y == tag;
      lose_patience(tries);
    } while (!all);
#pragma unroll
    for (int j = 0; j < kWords; ++j) {
      reinterpret_cast<float2*>(raw)[lane_ + 32 * j] =
          make_float2(ptx::low_half(v[j].x), ptx::high_half(v[j].x));
    }
    __syncwarp();
  }

  // A head, normed and turned by its position, element by element rounded to bf16.
  template <class Put>
  __device__ __forceinline__ void turn(const RelayAttention& s, const float* raw, const float* norm,
                                       int pairs, const Put& put) const {
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
      put(e, __float2bfloat16_rn(x));
    }
  }

  const int thread_;
  const int warp_;
  const int lane_;
  float* q_;              // [items, group, D]
  __nv_bfloat16* fresh_;  // [items, 2, D]
  float* raw_;            // [items, group + 2, D]
  float* turns_;          // [2, 64]
};

}  // namespace braid::cuda
