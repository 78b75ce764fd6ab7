#pragma once

#include "braid/kernels/cuda/relay/device/heads.cuh"
#include "braid/kernels/cuda/relay/device/key_units.cuh"

// Attention in a relay. CTAs get equal shares of all heads' key units (relay_keys), and a CTA's
// warps take the CTA's units in turns. Each CTA hands its parts of a head to the CTA that adds up
// the head, which then hands the sum to all CTAs.
namespace braid::cuda {

template <int kD>
class RelayAttend {
  static constexpr int kKeys = relay_keys(kD);  // in a unit
  static constexpr int kItems = RelayAttentionLayout::kItems;
  static constexpr int kPieceRow = KeyUnits<kD, __nv_bfloat16, false>::kPieceRow;
  static constexpr int kPartWords = kD / 2 + 1;

 public:
  __device__ RelayAttend(const RelayArgs& a, uint8_t* smem, const RelayLayout& layout)
      : a_(a),
        heads_(smem, layout),
        flow_(a, smem, layout),
        x_(smem + layout.x),
        thread_(threadIdx.x),
        warp_(thread_ / 32) {}

  __device__ void run(const RelayAttention& s, const RelayPlace& place, RelayRing& ring) {
    const RelayKeys keys(__ldg(s.kv_len), s.window, s.kv_heads, kKeys, gridDim.x);
    const int begin = keys.shares.begin(blockIdx.x), end = keys.shares.end(blockIdx.x);
    ring.begin(end - begin);
    if (end > begin) {
      const int head = begin / keys.units;  // first head with keys on this CTA
      const int items = end > (head + 1) * keys.units ? 2 : 1;
      pieces_ = reinterpret_cast<float*>(x_ + RelayAttentionLayout(kD, s.group).pieces);
      heads_.receive(s, place, keys, begin, end, head, items);
      flow_.stream();
      int unit = begin + warp_;
#pragma unroll 1
      for (int item = 0; item < items; ++item) {
        const int first = (head + item) * keys.units, stop = min(end, first + keys.units);
        units_.begin(heads_.q(s, item, 0), s.group);
#pragma unroll 1
        for (; unit < stop; unit += kRelayWarps) {
          const int key = (keys.first_unit + unit - first) * kKeys;
          const int stored = keys.length - 1 - key;
          units_.add({ring.wait(), reinterpret_cast<const uint8_t*>(heads_.fresh(s, item)), 1,
                      stored, keys.first - key, stored + 1},
                     s.scale * ptx::kLog2E);
          ring.release();
        }
        units_.put(pieces_ + warp_ * s.group * kPieceRow, s.group);
        sync_workers();
        if (item + 1 == items) flow_.make_way();
        hand_on(s, place, item);
        sync_workers();
      }
    }
    add_parts(s, place, keys);
  }

 private:
  // Merges the warps' pieces of a head and sends the result to the CTA that adds up the head.
  __device__ void hand_on(const RelayAttention& s, const RelayPlace& place, int item) {
#pragma unroll 1
    for (int i = thread_; i < s.group * kPartWords; i += kRelayThreads) {
      const int g = i / kPartWords, word = i % kPartWords;
      const float* pieces = pieces_ + g * kPieceRow;
      const auto piece = [&](int w) { return pieces + w * s.group * kPieceRow; };
      float top = -INFINITY;
      for (int w = 0; w < kRelayWarps; ++w) top = fmaxf(top, piece(w)[kD]);
      const float base = top == -INFINITY ? 0.f : top;
      float2 sum = make_float2(0, 0);
      const bool is_stats = word == kD / 2;
      for (int w = 0; w < kRelayWarps; ++w) {
        const float weight = ptx::exp2_approx(piece(w)[kD] - base);
        const float2 x = reinterpret_cast<const float2*>(piece(w))[word];
        sum.x += weight * x.x;
        sum.y += weight * x.y;
      }
      if (is_stats) sum.x = top;  // m; sum.y is l
      ptx::store_relaxed_gpu(
          part(s, blockIdx.x, item, g) + word,
          make_uint4(__float_as_uint(sum.x), place.out_tag, __float_as_uint(sum.y), place.out_tag));
    }
  }

  __device__ uint4* part(const RelayAttention& s, int cta, int item, int g) const {
    return a_.parts + ((cta * kItems + item) * s.group + g) * kPartWords;
  }

  // Heads are dealt to CTAs as well: each CTA adds up its heads' parts, in key order.
  __device__ void add_parts(const RelayAttention& s, const RelayPlace& place,
                            const RelayKeys& keys) const {
    constexpr int kThreads = kD / 2;  // per head
    constexpr int kTogether = 4;
    const Shares heads(s.kv_heads * s.group, gridDim.x);
    const int end = heads.end(blockIdx.x);
    const int word = thread_ % kThreads;
#pragma unroll 1
    for (int h = heads.begin(blockIdx.x) + thread_ / kThreads; h < end;
         h += kRelayThreads / kThreads) {
      const int kv = h / s.group, g = h - kv * s.group;
      const int first = keys.shares.owner(kv * keys.units);
      const int count = keys.shares.owner((kv + 1) * keys.units - 1) - first + 1;
      float top = -INFINITY, l = 0;
      float2 o = make_float2(0, 0);
#pragma unroll 1
      for (int done = 0; done < count; done += kTogether) {
        const uint4* from[kTogether];
#pragma unroll
        for (int j = 0; j < kTogether; ++j) {
          const int cta = first + min(done + j, count - 1);
          // The sending CTA's first head, or the second.
          from[j] = part(s, cta, keys.shares.begin(cta) < kv * keys.units ? 1 : 0, g);
        }
        uint4 its[2 * kTogether];  // o, then m and l
        wait_words(its, place.out_tag,
                   [&](int j) { return from[j % kTogether] + (j < kTogether ? word : kD / 2); });
        const uint4* its_o = its;
        const uint4* its_stats = its + kTogether;
        float to = top;
#pragma unroll
        for (int j = 0; j < kTogether; ++j) {
          if (done + j < count) to = fmaxf(to, __uint_as_float(its_stats[j].x));
        }
        const float base = to == -INFINITY ? 0.f : to;
        const float keep = ptx::exp2_approx(top - base);
        top = to;
        l *= keep;
        o = make_float2(o.x * keep, o.y * keep);
#pragma unroll
        for (int j = 0; j < kTogether; ++j) {
          if (done + j >= count) continue;
          const float weight = ptx::exp2_approx(__uint_as_float(its_stats[j].x) - base);
          l += weight * __uint_as_float(its_stats[j].z);
          o.x += weight * __uint_as_float(its_o[j].x);
          o.y += weight * __uint_as_float(its_o[j].z);
        }
      }
      const float scale = l > 0 ? 1 / l : 0;
      const uint32_t pair = ptx::pack<__nv_bfloat16>(o.x * scale, o.y * scale);
      static_cast<uint32_t*>(s.out)[h * kThreads + word] = pair;
      ptx::store_relaxed_gpu(place.out + h * kThreads + word, make_uint2(pair, place.out_tag));
    }
  }

  const RelayArgs& a_;
  RelayHeads<kD> heads_;
  const RelayFlow flow_;
  uint8_t* const x_;
  const int thread_;
  const int warp_;
  float* pieces_;  // [warps, group, D + 4]
  KeyUnits<kD, __nv_bfloat16, false> units_;
};

}  // namespace braid::cuda
