#pragma once

#include "braid/kernels/cuda/relay/device/heads.cuh"

// Attention of a relay. CTAs get equal shares of all heads' key units (relay_keys), and a CTA's
// warps take the CTA's units in turns. Each CTA hands its parts of a head to the CTA that adds up
// the head, which then hands the sum to all CTAs.
//
// Scores are q [heads of a KV head, D] times K^T; results are V^T times weights [keys, heads]. The
// lane with row g and columns 2 t, 2 t + 1 of a matrix reads 16 bytes of a key's row at a time.
// Elements come in any order, equal for q and K. Keys come in an order (key_of) without bank
// conflicts for K and V.
namespace braid::cuda {

template <int kD>
class RelayAttend {
  static constexpr int kKeys = relay_keys(kD);  // in a unit
  static constexpr int kTiles = kKeys / 8;      // per unit
  static constexpr int kReads = kD / 32;        // 16-byte reads of a key's row, by four lanes
  static constexpr int kParts = kD / 64;        // 128-byte parts of a row, swizzled
  static constexpr int kItems = RelayAttentionLayout::kItems;
  static constexpr int kPieceRow = kD + 4;  // O', m, l
  static constexpr int kPartWords = kD / 2 + 1;

 public:
  __device__ RelayAttend(const RelayArgs& a, uint8_t* smem, const RelayLayout& layout)
      : a_(a),
        heads_(smem, layout),
        flow_(a, smem, layout),
        x_(smem + layout.x),
        thread_(threadIdx.x),
        warp_(thread_ / 32),
        g_(thread_ % 32 / 4),
        t_(thread_ % 4) {}

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
        begin_item(s, item);
#pragma unroll 1
        for (; unit < stop; unit += kRelayWarps) {
          attend(s, keys, (keys.first_unit + unit - first) * kKeys, item, ring);
        }
        put_piece(s);
        sync_workers();
        if (item + 1 == items) flow_.make_way();
        hand_on(s, place, item);
        sync_workers();
      }
    }
    add_parts(s, place, keys);
  }

 private:
  // Number of the r-th key of a tile.
  __device__ static int key_of(int r) {
    const int b0 = r & 1, b1 = r >> 1 & 1, b2 = r >> 2;
    return kD == 128 ? b0 << 2 | (b1 ^ b0) << 1 | b2 : (b1 ^ b0) << 2 | b2 << 1 | b0;
  }
  // 16 bytes of a K or V row in a unit; stored rows are swizzled.
  __device__ static uint4 read(const uint8_t* row, int key, int part, int chunk, bool stored) {
    const int twist = stored ? (key * kParts + part) & 7 : 0;
    return *reinterpret_cast<const uint4*>(row + part * 128 + (chunk ^ twist) * 16);
  }

  __device__ void begin_item(const RelayAttention& s, int item) {
    const auto* q = reinterpret_cast<const uint4*>(heads_.q(s, item, min(g_, s.group - 1)));
#pragma unroll
    for (int i = 0; i < kReads; ++i) {
      const uint4 x = q[t_ + 4 * i];
      // Rows 0 to 7 of a take words 0 and 1, rows 8 to 15 words 2 and 3.
      q_[i][0] = x.x, q_[i][1] = x.z, q_[i][2] = x.y, q_[i][3] = x.w;
    }
#pragma unroll
    for (int i = 0; i < kD / 16; ++i) {
#pragma unroll
      for (int c = 0; c < 4; ++c) o_[i][c] = 0;
    }
    max_ = -INFINITY;
    sum_ = 0;
  }

  // Takes in a unit; `first` is the unit's first key.
  __device__ __forceinline__ void attend(const RelayAttention& s, const RelayKeys& keys, int first,
                                         int item, RelayRing& ring) {
    const uint8_t* slot = ring.wait();
    const auto* fresh = reinterpret_cast<const uint8_t*>(heads_.fresh(s, item));
    const int stored = keys.length - 1 - first;  // cached keys; then the newest key, then none
    const float scale = s.scale * ptx::kLog2E;
    float p[kTiles][2];
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
      const int key = 8 * n + key_of(g_);
      const bool is_stored = key < stored;
      const uint8_t* row = is_stored ? slot + key * kD * 2 : fresh;
      float low[4] = {}, high[4] = {};
#pragma unroll
      for (int i = 0; i < kReads; ++i) {
        const uint4 k = read(row, key, i / 2, t_ + i % 2 * 4, is_stored);
        ptx::mma_16816<__nv_bfloat16>(low, q_[i], k.x, k.y);
        ptx::mma_16816<__nv_bfloat16>(high, q_[i], k.z, k.w);
      }
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        const int its_key = 8 * n + key_of(2 * t_ + c);
        const bool seen = its_key <= stored && first + its_key >= keys.first;
        p[n][c] = seen ? (low[c] + high[2 + c]) * scale : -INFINITY;
      }
    }
    weigh(p);
#pragma unroll
    for (int m = 0; m < kTiles / 2; ++m) {
      const uint32_t weights[2] = {ptx::pack<__nv_bfloat16>(p[2 * m][0], p[2 * m][1]),
                                   ptx::pack<__nv_bfloat16>(p[2 * m + 1][0], p[2 * m + 1][1])};
#pragma unroll
      for (int part = 0; part < kParts; ++part) {
        uint4 v[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int key = 16 * m + i / 2 * 8 + key_of(2 * t_ + i % 2);
          const bool is_stored = key < stored;  // past the newest anything may lie there
          const uint8_t* row =
              is_stored ? slot + kRelaySlotBytes / 2 + key * kD * 2 : fresh + kD * 2;
          v[i] = read(row, key, part, g_, is_stored);
        }
        float(*o)[4] = o_ + 4 * part;
        add_values(o[0], weights, v[0].x, v[1].x, v[2].x, v[3].x);
        add_values(o[1], weights, v[0].y, v[1].y, v[2].y, v[3].y);
        add_values(o[2], weights, v[0].z, v[1].z, v[2].z, v[3].z);
        add_values(o[3], weights, v[0].w, v[1].w, v[2].w, v[3].w);
      }
    }
    ring.release();
  }

  // Turns scores, in units of log2, into weights, and scales earlier sums to the new maximum.
  __device__ __forceinline__ void weigh(float (&p)[kTiles][2]) {
    float top = max_;
#pragma unroll
    for (int n = 0; n < kTiles; ++n) top = fmaxf(top, fmaxf(p[n][0], p[n][1]));
    top = fmaxf(top, __shfl_xor_sync(0xffffffff, top, 1));
    top = fmaxf(top, __shfl_xor_sync(0xffffffff, top, 2));
    const float base = top == -INFINITY ? 0.f : top;
    const float keep = ptx::exp2_approx(max_ - base);
    max_ = top;
    sum_ *= keep;
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        p[n][c] = ptx::exp2_approx(p[n][c] - base);
        sum_ += p[n][c];
      }
    }
    const float keeps[2] = {__shfl_sync(0xffffffff, keep, 8 * t_),
                            __shfl_sync(0xffffffff, keep, 8 * t_ + 4)};
#pragma unroll
    for (int i = 0; i < kD / 16; ++i) {
#pragma unroll
      for (int c = 0; c < 4; ++c) o_[i][c] *= keeps[c % 2];
    }
  }

  // A pair of elements from four keys: row g first, row g + 8 second.
  __device__ __forceinline__ static void add_values(float (&o)[4], const uint32_t (&weights)[2],
                                                    uint32_t v0, uint32_t v1, uint32_t v2,
                                                    uint32_t v3) {
    const uint32_t a[4] = {__byte_perm(v0, v1, 0x5410), __byte_perm(v0, v1, 0x7632),
                           __byte_perm(v2, v3, 0x5410), __byte_perm(v2, v3, 0x7632)};
    ptx::mma_16816<__nv_bfloat16>(o, a, weights[0], weights[1]);
  }

  // Stores this warp's sums for the heads at work.
  __device__ void put_piece(const RelayAttention& s) {
    sum_ += __shfl_xor_sync(0xffffffff, sum_, 1);
    sum_ += __shfl_xor_sync(0xffffffff, sum_, 2);
    float* pieces = pieces_ + warp_ * s.group * kPieceRow;
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      if (2 * t_ + c >= s.group) break;
      auto* to = reinterpret_cast<float4*>(pieces + (2 * t_ + c) * kPieceRow + 8 * g_);
#pragma unroll
      for (int i = 0; i < kD / 16; i += 2) {  // 64 elements for four rows of o
        to[i / 4 * 16 + i % 4 / 2] =
            make_float4(o_[i][c], o_[i][c + 2], o_[i + 1][c], o_[i + 1][c + 2]);
      }
    }
    if (t_ == 0 && g_ < s.group) {
      pieces[g_ * kPieceRow + kD] = max_;
      pieces[g_ * kPieceRow + kD + 1] = sum_;
    }
  }

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

  // Heads are dealt to CTAs as well: each CTA adds up the parts of its heads, in key order.
  __device__ void add_parts(const RelayAttention& s, const RelayPlace& place,
                            const RelayKeys& keys) const {
    constexpr int kThreads = kD / 2;  // per head
    constexpr int kTogether = 4;
    const RelayShares heads(s.kv_heads * s.group, gridDim.x);
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
  const int g_;
  const int t_;
  float* pieces_;  // [warps, group, D + 4]
  // q for all query heads of the KV head at work.
  uint32_t q_[kReads][4];
  float o_[kD / 16][4];  // for heads 2 t and 2 t + 1
  float max_;
  float sum_;  // l over this lane's keys
};

}  // namespace braid::cuda
