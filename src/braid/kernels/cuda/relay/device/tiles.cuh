#pragma once

#include "braid/kernels/cuda/linear/device/weight_steps.cuh"
#include "braid/kernels/cuda/relay/device/planes.cuh"
#include "braid/kernels/cuda/relay/device/worker.cuh"

// Products of x with tiles of 16 block rows, by a warp, in steps of 256 elements and eight mma's.
// Matrix a holds 32 integers from each row. The columns of b hold both planes of x (RelayPlanes)
// for four groups of 32 elements; columns for groups other than a's are zeros. All products
// therefore add up in place: lane t among a row's four lanes ends with groups t and 4 + t, and
// looks up only these groups' scales.
namespace braid::cuda {

// How a lane's a and b meet, for eight bytes of a row from 8t on. `kSums`: number of sums at the
// end. A step reads b kReads times, and kMasks selects the counting parts.
struct RelayGroups {  // 32 elements
  static constexpr int kSums = 2, kReads = 2, kMasks = 4;
  static constexpr int sum(int i) { return i / 4; }
  static constexpr int read(int i) { return i / 4; }
  static constexpr int mask(int i) { return i % 4; }
  static constexpr int place(int read) { return 256 * read; }
  __device__ static int column(int n, int t) { return 32 * n + 8 * t; }
  __device__ static bool meets(int n, int, int mask) { return n / 2 == mask; }
};

// Nibbles of a group's low or high elements; lanes 2 and 3 have the next group's.
struct RelayPairs {
  static constexpr int kSums = 2, kReads = 4, kMasks = 2;
  static constexpr int sum(int i) { return i / 4; }
  static constexpr int read(int i) { return i / 4 * 2 + i % 2; }
  static constexpr int mask(int i) { return i / 2 % 2; }
  static constexpr int place(int read) { return read / 2 * 256 + read % 2 * 16; }
  __device__ static int column(int n, int t) { return 32 * n + 8 * (t % 2); }
  __device__ static bool meets(int n, int t, int mask) { return n / 2 == 2 * mask + t / 2; }
};

// The halves of a group have separate products: lane t has halves t, 4 + t and further.
struct RelayHalves {
  static constexpr int kSums = 4, kReads = 4, kMasks = 2;
  static constexpr int sum(int i) { return i / 2; }
  static constexpr int read(int i) { return i / 2; }
  static constexpr int mask(int i) { return i % 2; }
  static constexpr int place(int read) { return 128 * read; }
  __device__ static int column(int n, int t) { return n / 4 * 64 + n % 2 * 32 + 8 * t; }
  __device__ static bool meets(int n, int t, int mask) {
    return n / 4 == mask && n / 2 % 2 == t / 2;
  }
};

// Eight bytes from an even address on, or from a multiple of 4.
template <bool kWords>
class RelayBytes {
 public:
  __device__ explicit RelayBytes(const uint8_t* p)
      : words_(p - (kWords ? 0 : reinterpret_cast<uintptr_t>(p) & 2)),
        order_(reinterpret_cast<uintptr_t>(p) & 2 ? 0x5432 : 0x3210) {}
  // `offset` is a multiple of 4.
  __device__ uint2 at(int offset) const {
    const auto* w = reinterpret_cast<const uint32_t*>(words_ + offset);
    if constexpr (kWords) return {w[0], w[1]};
    return {__byte_perm(w[0], w[1], order_), __byte_perm(w[1], w[2], order_)};
  }

 private:
  const uint8_t* words_;
  uint32_t order_;
};

// A format: kBytes for 256 elements of a row. `a` is a lane's share of the i-th mma. `weigh` turns
// a lane's products p and sums of x into a result over the first `groups` groups.

template <class Block>
struct RelayNibbles {
  using Columns = RelayPairs;
  static constexpr int kBytes = 8 * sizeof(Block);
  static constexpr bool kSigned = false;
  static constexpr bool kMin = requires(Block b) { b.m; };
  static constexpr bool kFifth = requires(Block b) { b.qh; };
  static constexpr bool kWords = sizeof(Block) % 4 == 0;
  static constexpr float kMiddle = kFifth ? 16 : 8;

  struct Row {
    const uint8_t* at;
    const uint8_t* mine;  // this lane's block among the first two
    RelayBytes<kWords> q;
    int t;
    __device__ Row(const uint8_t* w, int t)
        : at(w), mine(w + t / 2 * sizeof(Block)), q(mine + offsetof(Block, qs) + t % 2 * 8), t(t) {}
    __device__ uint2 a(int i) const {
      const int offset = i / 2 * 2 * static_cast<int>(sizeof(Block));
      uint2 v = q.at(offset);
      if (i % 2) v.x >>= 4, v.y >>= 4;
      v.x &= 0x0f0f0f0fu, v.y &= 0x0f0f0f0fu;
      if constexpr (kFifth) {
        const uint8_t* qh = mine + offset + offsetof(Block, qh);
        const uint32_t bits = (kWords ? *reinterpret_cast<const uint32_t*>(qh) : load_u16x2(qh)) >>
                              (i % 2 * 16 + t % 2 * 8);
        v.x |= spread_fifth_bits(bits), v.y |= spread_fifth_bits(bits >> 4);
      }
      return v;
    }
    __device__ float weigh(const float (&p)[2], const float (&sums)[2], int groups) const {
      float all = 0;
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int j = 4 * i + t;
        const uint8_t* block = at + j * static_cast<int>(sizeof(Block));
        const float d = f16_at(block + offsetof(Block, d));
        float y;
        if constexpr (kMin) {
          y = d * p[i] + f16_at(block + offsetof(Block, m)) * sums[i];
        } else {
          y = d * (p[i] - kMiddle * sums[i]);
        }
        all += j < groups ? y : 0;
      }
      return all;
    }
  };
};

struct RelayQ8 {
  using Columns = RelayGroups;
  static constexpr int kBytes = 8 * sizeof(BlockQ8_0);
  static constexpr bool kSigned = true;

  struct Row {
    const uint8_t* at;
    RelayBytes<false> even, odd;
    int t;
    __device__ Row(const uint8_t* w, int t)
        : at(w), even(w + 2 + 8 * t), odd(w + sizeof(BlockQ8_0) + 2 + 8 * t), t(t) {}
    __device__ uint2 a(int i) const {
      const int offset = i / 2 * 2 * static_cast<int>(sizeof(BlockQ8_0));
      return i % 2 ? odd.at(offset) : even.at(offset);
    }
    __device__ float weigh(const float (&p)[2], const float (&)[2], int groups) const {
      float all = 0;
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int j = 4 * i + t;
        const float y = f16_at(at + j * static_cast<int>(sizeof(BlockQ8_0))) * p[i];
        all += j < groups ? y : 0;
      }
      return all;
    }
  };
};

// Formats without a fifth bit keep high nibbles 16 times too large.
template <class Block>
struct RelaySuperBlocks {
  using Columns = RelayGroups;
  static constexpr int kBytes = sizeof(Block);
  static constexpr bool kSigned = false;
  static constexpr bool kFifth = requires(Block b) { b.qh; };

  struct Row {
    const uint8_t* at;
    int t;
    uint2 fifth = {};
    __device__ Row(const uint8_t* w, int t) : at(w), t(t) {
      if constexpr (kFifth) fifth = *reinterpret_cast<const uint2*>(at + 16 + 8 * t);
    }
    __device__ static uint32_t bits(uint32_t fifth, int i) {
      return (i < 4 ? fifth << (4 - i) : fifth >> (i - 4)) & 0x10101010u;
    }
    __device__ uint2 a(int i) const {
      uint2 v = *reinterpret_cast<const uint2*>(at + offsetof(Block, qs) + i / 2 * 32 + 8 * t);
      if constexpr (kFifth) {
        if (i % 2) v.x >>= 4, v.y >>= 4;
        return {(v.x & 0x0f0f0f0fu) | bits(fifth.x, i), (v.y & 0x0f0f0f0fu) | bits(fifth.y, i)};
      }
      const uint32_t nibbles = i % 2 ? 0xf0f0f0f0u : 0x0f0f0f0fu;
      return {v.x & nibbles, v.y & nibbles};
    }
    __device__ float weigh(const float (&p)[2], const float (&sums)[2], int) const {
      const uint4 head = *reinterpret_cast<const uint4*>(at);
      const uint32_t a = head.y >> 8 * t, b = head.z >> 8 * t, c = head.w >> 8 * t;
      const float scales[2] = {static_cast<float>(a & 63),
                               static_cast<float>((c & 15) | (a >> 2 & 48))};
      const float mins[2] = {static_cast<float>(b & 63),
                             static_cast<float>((c >> 4 & 15) | (b >> 2 & 48))};
      const float2 d = __half22float2(*reinterpret_cast<const __half2*>(&head.x));
      const float share = !kFifth && t % 2 ? 0x1p-4f : 1.f;
      return d.x * share * (scales[0] * p[0] + scales[1] * p[1]) -
             d.y * (mins[0] * sums[0] + mins[1] * sums[1]);
    }
  };
};

struct RelayQ6 {
  using Columns = RelayHalves;
  static constexpr int kBytes = sizeof(BlockQ6_K);
  static constexpr bool kSigned = false;

  struct Row {
    const uint8_t* at;
    RelayBytes<false> low, high;
    int t;
    __device__ Row(const uint8_t* w, int t)
        : at(w), low(w + 8 * t), high(w + offsetof(BlockQ6_K, qh) + 8 * t), t(t) {}
    __device__ uint2 a(int i) const {
      const int half = i / 4, quarter = i % 4;
      const uint2 q = low.at(64 * half + quarter % 2 * 32), h = high.at(32 * half);
      const auto join = [&](uint32_t q, uint32_t h) {
        const uint32_t bits = quarter < 2 ? h << (4 - 2 * quarter) : h >> (2 * quarter - 4);
        return (q >> quarter / 2 * 4 & 0x0f0f0f0fu) | (bits & 0x30303030u);
      };
      return {join(q.x, h.x), join(q.y, h.y)};
    }
    __device__ float weigh(const float (&p)[4], const float (&sums)[4], int) const {
      const auto* scales = reinterpret_cast<const int8_t*>(at + offsetof(BlockQ6_K, scales) + t);
      float all = 0;
#pragma unroll
      for (int i = 0; i < 4; ++i) all += static_cast<float>(scales[4 * i]) * (p[i] - 32 * sums[i]);
      return f16_at(at + offsetof(BlockQ6_K, d)) * all;
    }
  };
};

// Adds this lane's share of `bytes` of rows g and g + 8 times x, from element `elem` on, to sum.
// Rows may end within a step: elements past the end are computed and not counted.
template <class Format>
__device__ __forceinline__ void multiply_tile(const uint8_t* row, const uint8_t* other, int bytes,
                                              const RelayPlanes& x, int elem, float (&sum)[2]) {
  using Columns = typename Format::Columns;
  constexpr int kSums = Columns::kSums;
  const int lane = threadIdx.x % 32, n = lane / 4, t = lane % 4;
  uint32_t masks[Columns::kMasks];
#pragma unroll
  for (int i = 0; i < Columns::kMasks; ++i) masks[i] = Columns::meets(n, t, i);
  const uint8_t* columns = x.bytes + 2 * elem + Columns::column(n, t);
#pragma unroll 1
  for (; bytes > 0; bytes -= Format::kBytes) {
    const typename Format::Row rows[2] = {{row, t}, {other, t}};
    uint2 b[Columns::kReads];
#pragma unroll
    for (int i = 0; i < Columns::kReads; ++i) {
      b[i] = *reinterpret_cast<const uint2*>(columns + Columns::place(i));
    }
    int32_t c[kSums][4] = {};
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const uint2 w = rows[0].a(i), v = rows[1].a(i), its = b[Columns::read(i)];
      const uint32_t mask = masks[Columns::mask(i)], a[4] = {w.x, v.x, w.y, v.y};
      ptx::mma_16832<Format::kSigned>(c[Columns::sum(i)], a, its.x * mask, its.y * mask);
    }
    float scales[kSums], sums[kSums];
#pragma unroll
    for (int i = 0; i < kSums; ++i) {
      const int part = elem / (kSums == 4 ? 16 : 32) + 4 * i + t;
      scales[i] = x.scales[kSums == 4 ? part / 2 : part];
      if constexpr (kSums == 4) {
        sums[i] = x.sums[part];
      } else {
        const float2 halves = reinterpret_cast<const float2*>(x.sums)[part];
        sums[i] = halves.x + halves.y;
      }
    }
    const int groups = bytes / (Format::kBytes / 8);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float p[kSums];
#pragma unroll
      for (int i = 0; i < kSums; ++i) {
        p[i] = static_cast<float>(256 * c[i][2 * r] + c[i][2 * r + 1]) * scales[i];
      }
      sum[r] += rows[r].weigh(p, sums, groups);
    }
    row += Format::kBytes, other += Format::kBytes;
    columns += 512, elem += 256;
  }
}

// A slot's rows by their dtype.
__device__ __forceinline__ void multiply_tile(DType dtype, const uint8_t* row, const uint8_t* other,
                                              int bytes, const RelayPlanes& x, int elem,
                                              float (&sum)[2]) {
#define BRAID_RELAY_TILE(type, ...) \
  case DType::type:                 \
    return multiply_tile<__VA_ARGS__>(row, other, bytes, x, elem, sum)
  switch (dtype) {
    BRAID_RELAY_TILE(q4_0, RelayNibbles<BlockQ4_0>);
    BRAID_RELAY_TILE(q4_1, RelayNibbles<BlockQ4_1>);
    BRAID_RELAY_TILE(q5_0, RelayNibbles<BlockQ5_0>);
    BRAID_RELAY_TILE(q5_1, RelayNibbles<BlockQ5_1>);
    BRAID_RELAY_TILE(q8_0, RelayQ8);
    BRAID_RELAY_TILE(q4_k, RelaySuperBlocks<BlockQ4_K>);
    BRAID_RELAY_TILE(q5_k, RelaySuperBlocks<BlockQ5_K>);
    BRAID_RELAY_TILE(q6_k, RelayQ6);
    default:
      __trap();
  }
#undef BRAID_RELAY_TILE
}

}  // namespace braid::cuda
