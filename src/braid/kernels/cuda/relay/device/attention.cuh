#pragma once

#include "braid/kernels/cuda/relay/device/heads.cuh"

// Attention of a relay. Keys of all heads are dealt to CTAs in units (relay_keys), a CTA's units to
// its warps in turns. CTAs hand their parts of a head to the one that adds them up, and this one
// the sum to all.
namespace braid::cuda {

template <int kD, int kGroup>
class RelayAttend {
  static constexpr int kKeys = relay_keys(kD);
  static constexpr int kLanes = kD / 8;      // that share a key: 16 bytes each
  static constexpr int kRows = 32 / kLanes;  // keys that a warp reads at once
  static constexpr int kReads = kKeys / kRows;
  static constexpr int kItems = RelayAttentionLayout::kItems;
  static constexpr int kPieceRow = kD + 4;  // O', m, l
  static constexpr int kPartWords = kD / 2 + 1;
  static_assert(kReads == 8);

 public:
  __device__ RelayAttend(const RelayArgs& a, uint8_t* smem, const RelayLayout& layout)
      : a_(a),
        heads_(smem, layout),
        thread_(threadIdx.x),
        warp_(thread_ / 32),
        lane_(thread_ % 32),
        dim_(lane_ % kLanes * 8),
        read_(lane_ % kLanes / (kLanes / kReads)) {
    const RelayAttentionLayout at(kD, kGroup);
    pieces_ = reinterpret_cast<float*>(smem + layout.x + at.pieces);
  }

  __device__ void run(const RelayAttention& s, const RelayPlace& place, RelayRing& ring) {
    const RelayKeys keys(__ldg(s.kv_len), s.window, s.kv_heads, kKeys, gridDim.x);
    const int begin = keys.begin(blockIdx.x), end = keys.begin(blockIdx.x + 1);
    const int head = begin / keys.units;  // the first of which this CTA has keys
    const int items = end > begin ? (end - 1) / keys.units - head + 1 : 0;
    ring.begin(end - begin);
    if (items > 0) {
      heads_.receive(s, place, keys, begin, end, head, items);
      attend(s, keys, begin, end, head, ring);
      hand_on(place, keys, head, items);
    }
    add_parts(s, place, keys);
    sync_workers();
  }

 private:
  // This warp's units; what it has of each head ends up in the pieces.
  __device__ void attend(const RelayAttention& s, const RelayKeys& keys, int begin, int end,
                         int head, RelayRing& ring) {
    const int sub = lane_ / kLanes;
    int item = 0;
    begin_item(item);
#pragma unroll 1
    for (int unit = begin + warp_; unit < end; unit += kRelayWarps) {
      const int kv = unit < (head + 1) * keys.units ? head : head + 1;
      if (kv - head != item) {
        put_piece();
        begin_item(++item);
      }
      const int key = (keys.first_unit + unit - kv * keys.units) * kKeys + sub;
      const auto* slot = reinterpret_cast<const uint4*>(ring.wait()) + lane_;
      const auto* fresh = reinterpret_cast<const uint4*>(heads_.fresh(item) + dim_);
      const int newest = keys.length - 1;
      float scores[kGroup][kReads];  // of this lane's dims
#pragma unroll
      for (int j = 0; j < kReads; ++j) {
        const uint4 k = key + j * kRows == newest ? *fresh : slot[32 * j];
#pragma unroll
        for (int g = 0; g < kGroup; ++g) scores[g][j] = dot(k, g);
      }
      const int mine = key + read_ * kRows;
      const bool seen = mine <= newest && mine >= keys.first;
      float p[kGroup];  // of key `mine`
#pragma unroll
      for (int g = 0; g < kGroup; ++g) {
        const float score = share(scores[g]);
        p[g] = weigh(g, seen ? score : -INFINITY);
      }
#pragma unroll
      for (int j = 0; j < kReads; ++j) {
        const int at = key + j * kRows;
        uint4 v = at == newest ? fresh[kD / 8] : slot[kRelaySlotBytes / 32 + 32 * j];
        if (at > newest) v = make_uint4(0, 0, 0, 0);  // anything may lie there
#pragma unroll
        for (int g = 0; g < kGroup; ++g) {
          accumulate(g, __shfl_sync(0xffffffff, p[g], lane_ / kLanes * kLanes + lane_of(j)), v);
        }
      }
      ring.release();
    }
    last_item_ = item;
  }

  __device__ void begin_item(int item) {
#pragma unroll
    for (int g = 0; g < kGroup; ++g) {
#pragma unroll
      for (int c = 0; c < 8; ++c) {
        query_[g][c] = heads_.q(item, g)[dim_ + c];
        o_[g][c] = 0;
      }
      max_[g] = -INFINITY;
      sum_[g] = 0;
    }
  }

  __device__ float dot(const uint4& k, int g) const {
    float x = ptx::low_half(k.x) * query_[g][0];
    float y = ptx::high_half(k.x) * query_[g][1];
    x = fmaf(ptx::low_half(k.y), query_[g][2], x);
    y = fmaf(ptx::high_half(k.y), query_[g][3], y);
    x = fmaf(ptx::low_half(k.z), query_[g][4], x);
    y = fmaf(ptx::high_half(k.z), query_[g][5], y);
    x = fmaf(ptx::low_half(k.w), query_[g][6], x);
    return fmaf(ptx::high_half(k.w), query_[g][7], y) + x;
  }

  // Sums over the lanes that share a key, of all reads at once: each lane gets that of read_.
  __device__ float share(float (&x)[kReads]) const {
#pragma unroll
    for (int half = kReads / 2; half > 0; half /= 2) {
      const int mask = half * kLanes / kReads;
      const bool upper = lane_ & mask;
#pragma unroll
      for (int i = 0; i < half; ++i) {
        const float other = __shfl_xor_sync(0xffffffff, upper ? x[i] : x[i + half], mask);
        x[i] = (upper ? x[i + half] : x[i]) + other;
      }
    }
#pragma unroll
    for (int mask = kLanes / kReads / 2; mask > 0; mask /= 2) {
      x[0] += __shfl_xor_sync(0xffffffff, x[0], mask);
    }
    return x[0];
  }
  // The lane of those that share a key which has read j.
  __device__ static constexpr int lane_of(int j) {
    return j * (kLanes / kReads);
  }

  // The weight of this lane's key; what was summed before is scaled to the new maximum.
  __device__ float weigh(int g, float score) {
    float top = score;
#pragma unroll
    for (int mask = 16; mask >= kLanes / kReads; mask /= 2) {
      top = fmaxf(top, __shfl_xor_sync(0xffffffff, top, mask));
    }
    top = fmaxf(top, max_[g]);
    const float base = top == -INFINITY ? 0.f : top;
    const float keep = ptx::exp2_approx(max_[g] - base);
    const float p = ptx::exp2_approx(score - base);
    max_[g] = top;
    sum_[g] = sum_[g] * keep + p;
#pragma unroll
    for (int c = 0; c < 8; ++c) o_[g][c] *= keep;
    return p;
  }

  __device__ void accumulate(int g, float p, const uint4& v) {
    o_[g][0] = fmaf(p, ptx::low_half(v.x), o_[g][0]);
    o_[g][1] = fmaf(p, ptx::high_half(v.x), o_[g][1]);
    o_[g][2] = fmaf(p, ptx::low_half(v.y), o_[g][2]);
    o_[g][3] = fmaf(p, ptx::high_half(v.y), o_[g][3]);
    o_[g][4] = fmaf(p, ptx::low_half(v.z), o_[g][4]);
    o_[g][5] = fmaf(p, ptx::high_half(v.z), o_[g][5]);
    o_[g][6] = fmaf(p, ptx::low_half(v.w), o_[g][6]);
    o_[g][7] = fmaf(p, ptx::high_half(v.w), o_[g][7]);
  }

  // What this warp has summed of a head, its lanes' keys together.
  __device__ void put_piece() {
#pragma unroll
    for (int g = 0; g < kGroup; ++g) {
#pragma unroll
      for (int mask = kLanes / 2; mask >= kLanes / kReads; mask /= 2) {
        sum_[g] += __shfl_xor_sync(0xffffffff, sum_[g], mask);
      }
#pragma unroll
      for (int mask = 16; mask >= kLanes; mask /= 2) {
        sum_[g] += __shfl_xor_sync(0xffffffff, sum_[g], mask);
#pragma unroll
        for (int c = 0; c < 8; ++c) o_[g][c] += __shfl_xor_sync(0xffffffff, o_[g][c], mask);
      }
      float* piece = pieces_ + (warp_ * kGroup + g) * kPieceRow;
      if (lane_ >= kLanes) continue;
#pragma unroll
      for (int c = 0; c < 8; ++c) piece[dim_ + c] = o_[g][c];
      if (lane_ == 0) {
        piece[kD] = max_[g];
        piece[kD + 1] = sum_[g];
      }
    }
  }

  // Warps' pieces of a head together, to the CTA that adds the CTAs'.
  __device__ void hand_on(const RelayPlace& place, const RelayKeys& keys, int head, int items) {
#pragma unroll 1
    for (int item = 0; item < items; ++item) {
      if (item > last_item_) begin_item(0);  // no unit of it was this warp's: nothing to add
      if (item > 0 || last_item_ == 0) put_piece();
      sync_workers();
      for (int i = thread_; i < kGroup * kPartWords; i += kRelayThreads) {
        const int g = i / kPartWords, word = i % kPartWords;
        const float* pieces = pieces_ + g * kPieceRow;
        const auto piece = [&](int w) { return pieces + w * kGroup * kPieceRow; };
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
        if (is_stats) sum.x = top;  // beside it l
        ptx::store_relaxed_gpu(part(blockIdx.x, item, g) + word,
                               make_uint4(__float_as_uint(sum.x), place.out_tag,
                                          __float_as_uint(sum.y), place.out_tag));
      }
      sync_workers();
    }
  }

  __device__ uint4* part(int cta, int item, int g) const {
    return a_.parts + ((cta * kItems + item) * kGroup + g) * kPartWords;
  }

  // Heads are dealt to CTAs, too: each adds the parts of its own in the order of the keys.
  __device__ void add_parts(const RelayAttention& s, const RelayPlace& place,
                            const RelayKeys& keys) const {
    constexpr int kThreads = kD / 2;  // of a head
    constexpr int kTogether = 4;
    const int heads = s.kv_heads * s.group, ctas = gridDim.x;
    const int end = relay_begin(heads, blockIdx.x + 1, ctas);
    const int word = thread_ % kThreads;
    for (int h = relay_begin(heads, blockIdx.x, ctas) + thread_ / kThreads; h < end;
         h += kRelayThreads / kThreads) {
      const int kv = h / s.group, g = h - kv * s.group;
      const int first = keys.owner(kv * keys.units);
      const int count = keys.owner((kv + 1) * keys.units - 1) - first + 1;
      float top = -INFINITY, l = 0;
      float2 o = make_float2(0, 0);
#pragma unroll 1
      for (int done = 0; done < count; done += kTogether) {
        uint4 its_o[kTogether], its_stats[kTogether];
        const uint4* from[kTogether];
#pragma unroll
        for (int j = 0; j < kTogether; ++j) {
          const int cta = first + min(done + j, count - 1);
          from[j] = part(cta, kv - keys.begin(cta) / keys.units, g);
        }
        uint32_t tries = 0;
        bool all;
        do {
          all = true;
#pragma unroll
          for (int j = 0; j < kTogether; ++j) {
            its_o[j] = ptx::load_relaxed_gpu(from[j] + word);
            its_stats[j] = ptx::load_relaxed_gpu(from[j] + kD / 2);
          }
#pragma unroll
          for (int j = 0; j < kTogether; ++j) {
            all = all && its_o[j].y == place.out_tag && its_o[j].w == place.out_tag &&
                  its_stats[j].y == place.out_tag && its_stats[j].w == place.out_tag;
          }
          lose_patience(tries);
        } while (!all);
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
  RelayHeads<kD, kGroup> heads_;
  const int thread_;
  const int warp_;
  const int lane_;
  const int dim_;   // the first of this lane's eight
  const int read_;  // whose key's weight this lane has
  float* pieces_;   // [warps, group, D + 4]
  // Of the head at work.
  float query_[kGroup][8];
  float o_[kGroup][8];
  float max_[kGroup];
  float sum_[kGroup];  // of the keys that this lane weighed
  int last_item_ = 0;  // of this warp's units
};

}  // namespace braid::cuda
