#pragma once

#include "braid/kernels/cuda/linear/device/output.cuh"
#include "braid/kernels/cuda/relay/device/sums.cuh"

// A linear of a relay: a CTA has neighbouring outputs, a warp every eighth piece of their weights.
namespace braid::cuda {

template <int kNorm, bool kRanked>
class RelayProduct {
 public:
  __device__ RelayProduct(const RelayArgs& a, uint8_t* smem, const RelayLayout& layout)
      : ranks_(a),
        x_(smem + layout.x),
        sums_(reinterpret_cast<float*>(smem + layout.sums)),
        squares_(reinterpret_cast<float*>(smem + layout.squares)),
        thread_(threadIdx.x) {}

  // x into shared memory.
  __device__ void load(const RelayLinear& s, const RelayPlace& place) {
    s.normed ? load_normed(s, place) : load_words(s, place);
  }

  __device__ void multiply(const RelayLinear& s, RelayRing& ring) const {
    const int row_bytes = 2 * s.k;
    const int per_row = (row_bytes + kRelaySlotBytes - 1) / kRelaySlotBytes;
    const int pieces = units(s) * (s.gated ? 2 : 1) * per_row;
    const int warp = thread_ / 32, lane = thread_ % 32;
    if (kRanked && s.x != nullptr && blockIdx.x == gridDim.x - 1) write_x(s);
    ring.begin(pieces);
    int part = warp % per_row;
    for (int i = warp; i < pieces; i += kRelayWarps) {
      const int bytes = min(kRelaySlotBytes, row_bytes - part * kRelaySlotBytes);
      const auto* w = reinterpret_cast<const uint4*>(ring.wait()) + lane;
      const auto* x = reinterpret_cast<const uint4*>(x_ + part * kRelaySlotBytes) + lane;
      const int chunks = bytes / 512;
      float sum[2] = {};
      int c = 0;
      for (; c + 8 <= chunks; c += 8) {
#pragma unroll
        for (int j = 0; j < 8; ++j) add_products(w[32 * (c + j)], x[32 * (c + j)], sum);
      }
#pragma unroll 1
      for (; c * 512 + lane * 16 < bytes; ++c) add_products(w[32 * c], x[32 * c], sum);
      ring.release();
      float all = sum[0] + sum[1];
#pragma unroll
      for (int mask = 16; mask > 0; mask /= 2) all += __shfl_xor_sync(0xffffffff, all, mask);
      if (lane == 0) sums_[i] = all;
      part = (part + kRelayWarps) % per_row;
    }
  }

  // Outputs, in pairs.
  __device__ void finish(const RelayLinear& s, const RelayPlace& place) const {
    const int first = 2 * relay_begin(s.units / 2, blockIdx.x, gridDim.x);
    const float scale = s.normed ? scale_of(s) : 1;
    // A thread has an output, its neighbour the other of a pair.
    const int count = units(s);
#pragma unroll 1
    for (int begin = 0; begin < count; begin += kRelayThreads) {
      const int unit = min(begin + thread_, count - 1);
      int part = 0, column = first + unit;
      if (!s.gated) {
        while (column >= s.n[part]) column -= s.n[part++];
      }
      const float y = output(s, sums_, part, column, unit, scale);
      const float other = __shfl_xor_sync(0xffffffff, y, 1);
      if (begin + thread_ >= count || unit % 2 != 0) continue;
      const uint32_t word = ptx::pack<__nv_bfloat16>(y, other);
      // Memory first: what is handed on may lead to stores to the same place.
      reinterpret_cast<uint32_t*>(s.y[part])[column / 2] = word;
      const int pair = (first + unit) / 2;
      if (kRanked && s.shared) {
        ranks_.send(pair, word, place.out_tag);
      } else {
        ptx::store_relaxed_gpu(place.out + pair, make_uint2(word, place.out_tag));
      }
    }
  }

  __device__ const RelaySums& ranks() const { return ranks_; }

 private:
  static constexpr int kNormPairs = kNorm / 2 / kRelayThreads;  // of a thread

  __device__ static int units(const RelayLinear& s) {
    return 2 * (relay_begin(s.units / 2, blockIdx.x + 1, gridDim.x) -
                relay_begin(s.units / 2, blockIdx.x, gridDim.x));
  }

  // Of the norm.
  __device__ float scale_of(const RelayLinear& s) const {
    float all = 0;
    for (int w = 0; w < kRelayWarps; ++w) all += squares_[w];
    return rsqrtf(all / static_cast<float>(s.k) + s.eps);
  }

  __device__ void write_x(const RelayLinear& s) const {
    const float scale = scale_of(s);
#pragma unroll 1
    for (int i = thread_; i < s.k / 2; i += kRelayThreads) {
      const uint32_t x = reinterpret_cast<const uint32_t*>(x_)[i];
      static_cast<uint32_t*>(s.x)[i] =
          ptx::pack<__nv_bfloat16>(ptx::low_half(x) * scale, ptx::high_half(x) * scale);
    }
  }

  __device__ __forceinline__ static float output(const RelayLinear& s, const float* sums, int part,
                                                 int column, int unit, float scale) {
    const int rows = s.gated ? 2 : 1;
    float y[2];
#pragma unroll 1
    for (int i = 0; i < rows; ++i) {
      const float* bias = s.bias[part + i];
      y[1] =
          total(s, sums, rows * unit + i) * scale + (bias == nullptr ? 0.f : __ldg(bias + column));
      if (i == 0) y[0] = y[1];
    }
    return s.gated ? activate(s.gelu, y[0]) * y[1] : y[0];
  }

  // Of a row: its pieces' sums in their order.
  __device__ static float total(const RelayLinear& s, const float* sums, int row) {
    const int per_row = (2 * s.k + kRelaySlotBytes - 1) / kRelaySlotBytes;
    float all = 0;
#pragma unroll 1
    for (int i = 0; i < per_row; ++i) all += sums[row * per_row + i];
    return all;
  }

  // Threads past the end do what the last one does.
  __device__ void load_words(const RelayLinear& s, const RelayPlace& place) const {
    constexpr int kTogether = 4;
    const auto* from = reinterpret_cast<const uint4*>(place.in);
    const int last = s.k / 4 - 1;
#pragma unroll 1
    for (int first = thread_; first <= last; first += kTogether * kRelayThreads) {
      uint4 v[kTogether];
      uint32_t tries = 0;
      bool all;
      do {
        all = true;
#pragma unroll
        for (int j = 0; j < kTogether; ++j) {
          v[j] = ptx::load_relaxed_gpu(from + min(first + j * kRelayThreads, last));
        }
#pragma unroll
        for (int j = 0; j < kTogether; ++j) {
          all = all && v[j].y == place.in_tag && v[j].w == place.in_tag;
        }
        lose_patience(tries);
      } while (!all);
#pragma unroll
      for (int j = 0; j < kTogether; ++j) {
        reinterpret_cast<uint2*>(x_)[min(first + j * kRelayThreads, last)] =
            make_uint2(v[j].x, v[j].z);
      }
    }
  }

  // x is s times the norm's weights; its scale waits until the end.
  __device__ void load_normed(const RelayLinear& s, const RelayPlace& place) {
    const int last = s.k / 2 - 1;
    const auto place_of = [&](int j) { return min(thread_ + j * kRelayThreads, last); };
    float2 w[kNormPairs];  // here before the words
#pragma unroll
    for (int j = 0; j < kNormPairs; ++j) {
      w[j] = __ldg(reinterpret_cast<const float2*>(s.norm_w) + place_of(j));
    }
    if (s.a != nullptr) {
#pragma unroll
      for (int j = 0; j < kNormPairs; ++j) {
        residual_[j] = __ldcg(reinterpret_cast<const float2*>(s.a) + place_of(j));
      }
    } else if (kRanked && s.summed) {
      ranks_.add_to(residual_, place.in_tag, place_of);
    } else {
      uint2 v[kNormPairs];
      uint32_t tries = 0;
      bool all;
      do {
        all = true;
#pragma unroll
        for (int j = 0; j < kNormPairs; ++j) v[j] = ptx::load_relaxed_gpu(place.in + place_of(j));
#pragma unroll
        for (int j = 0; j < kNormPairs; ++j) all = all && v[j].y == place.in_tag;
        lose_patience(tries);
      } while (!all);
#pragma unroll
      for (int j = 0; j < kNormPairs; ++j) {
        residual_[j].x += ptx::low_half(v[j].x);
        residual_[j].y += ptx::high_half(v[j].x);
      }
    }
    float sum = 0;
#pragma unroll
    for (int j = 0; j < kNormPairs; ++j) {
      const float2 r = residual_[j];
      if (thread_ + j * kRelayThreads <= last) sum += r.x * r.x + r.y * r.y;
      reinterpret_cast<uint32_t*>(x_)[place_of(j)] =
          ptx::pack<__nv_bfloat16>(r.x * w[j].x, r.y * w[j].y);
    }
#pragma unroll
    for (int mask = 16; mask > 0; mask /= 2) sum += __shfl_xor_sync(0xffffffff, sum, mask);
    if (thread_ % 32 == 0) squares_[thread_ / 32] = sum;
    if (s.sum == nullptr || blockIdx.x != 0) return;
#pragma unroll
    for (int j = 0; j < kNormPairs; ++j) {
      reinterpret_cast<float2*>(s.sum)[place_of(j)] = residual_[j];
    }
  }

  RelaySums ranks_;
  uint8_t* const x_;
  float* const sums_;
  float* const squares_;
  const int thread_;
  float2 residual_[kNormPairs] = {};  // s of the newest norm, this thread's pairs
};

}  // namespace braid::cuda
