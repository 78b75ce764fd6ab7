#pragma once

#include "braid/kernels/cuda/linear/device/weight_steps.cuh"
#include "braid/kernels/cuda/relay/device/worker.cuh"

// Products of x with tiles of 16 rows in blocks, by a warp, 256 elements at a time. A group of 32
// elements of all rows is a, with integers that are exact in bf16. The eight groups' x are the
// columns of b: group j's products stand in column j, so a lane gets those of two groups, whose
// scales it looks up for two rows. What all elements of a group have in common meets sums of x.
namespace braid::cuda {

// Lane t of the four that have a row knows groups 2t and 2t + 1.
struct RelayLane {
  int g, t;
  __device__ RelayLane() : g(threadIdx.x % 32 / 4), t(threadIdx.x % 4) {}
};

// A lane's products of a row: of two groups, in one or in two halves.
template <bool kHalves>
struct RelayGroups {
  float of[2][kHalves ? 2 : 1];
};

// x of 256 elements as columns of b, for the first and for the second 16 elements that a lane and
// its neighbours have of each group: neighbouring eights, or fours of both halves.
struct RelayColumns {
  uint32_t first[2], second[2];
  __device__ RelayColumns(const uint8_t* x, bool split, RelayLane lane) {
    const uint8_t* group = x + 64 * lane.g;
    if (split) {
      const uint2 low = *reinterpret_cast<const uint2*>(group + 8 * lane.t);
      const uint2 high = *reinterpret_cast<const uint2*>(group + 32 + 8 * lane.t);
      first[0] = low.x, first[1] = low.y, second[0] = high.x, second[1] = high.y;
    } else {
      const uint4 both = *reinterpret_cast<const uint4*>(group + 16 * lane.t);
      first[0] = both.x, first[1] = both.y, second[0] = both.z, second[1] = both.w;
    }
  }
};

__device__ __forceinline__ uint4 bytes_to_pairs(uint32_t low, uint32_t high) {
  return join(bytes_plus_128(low), bytes_plus_128(high));
}

// Byte i of bytes as a float.
__device__ __forceinline__ float byte_as_float(uint32_t bytes, int i) {
  return static_cast<float>(bytes >> 8 * i & 255);
}

// A format: 256 elements of a row are kBytes. `pairs` are a lane's share of group j; `weigh` is
// what its two groups come to, `sums` those of x, four of 16 elements, and `groups` how many there
// are.
template <DType kType, class Block>
struct RelayBlocks {
  static constexpr int kBytes = 8 * sizeof(Block);
  static constexpr bool kSplit = true;
  static constexpr bool kHalves = false;

  struct Row {
    const uint8_t* at;
    __device__ Row(const uint8_t* w, RelayLane) : at(w) {}
    __device__ uint4 pairs(int j, RelayLane lane) const {
      float scale, zero;
      return WeightStep<kType>::load(at, j, lane.t, &scale, &zero);
    }
    __device__ float weigh(const RelayGroups<false>& s, const float4& sums, int groups,
                           RelayLane lane) const {
      float scale[2], zero[2];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        WeightStep<kType>::load(at, 2 * lane.t + i, lane.t, &scale[i], &zero[i]);
      }
      const float first = scale[0] * s.of[0][0] + zero[0] * (sums.x + sums.y);
      const float second = scale[1] * s.of[1][0] + zero[1] * (sums.z + sums.w);
      return (2 * lane.t < groups ? first : 0) + (2 * lane.t + 1 < groups ? second : 0);
    }
  };
};

template <>
struct RelayBlocks<DType::bf16, uint16_t> {
  static constexpr int kBytes = 512;
  static constexpr bool kSplit = false;
  static constexpr bool kHalves = false;

  struct Row {
    const uint8_t* at;
    __device__ Row(const uint8_t* w, RelayLane) : at(w) {}
    __device__ uint4 pairs(int j, RelayLane lane) const {
      return *reinterpret_cast<const uint4*>(at + 64 * j + 16 * lane.t);
    }
    __device__ float weigh(const RelayGroups<false>& s, const float4&, int groups,
                           RelayLane lane) const {
      return (2 * lane.t < groups ? s.of[0][0] : 0) + (2 * lane.t + 1 < groups ? s.of[1][0] : 0);
    }
  };
};

template <class Block, bool kFifth>
struct RelaySuperBlocks {
  static constexpr int kBytes = sizeof(Block);
  static constexpr bool kSplit = false;
  static constexpr bool kHalves = false;

  struct Row {
    const uint8_t* at;
    uint2 fifth = {};
    __device__ Row(const uint8_t* w, RelayLane lane) : at(w) {
      if constexpr (kFifth) fifth = *reinterpret_cast<const uint2*>(at + 16 + 8 * lane.t);
    }
    __device__ uint4 pairs(int j, RelayLane lane) const {
      const uint2 q =
          *reinterpret_cast<const uint2*>(at + offsetof(Block, qs) + j / 2 * 32 + 8 * lane.t);
      uint32_t low = q.x >> j % 2 * 4 & 0x0f0f0f0fu, high = q.y >> j % 2 * 4 & 0x0f0f0f0fu;
      if constexpr (kFifth) {
        low |= (fifth.x >> j & 0x01010101u) << 4;
        high |= (fifth.y >> j & 0x01010101u) << 4;
      }
      return bytes_to_pairs(low, high);
    }
    // Of groups 2t and 2t + 1 alone: byte i of scales and mins.
    __device__ float weigh(const RelayGroups<false>& s, const float4& sums, int,
                           RelayLane lane) const {
      const uint4 head = *reinterpret_cast<const uint4*>(at);
      const int shift = lane.t % 2 * 16;
      const uint32_t a = head.y >> shift, b = head.z >> shift, c = head.w >> shift;
      const bool late = lane.t >= 2;
      const uint32_t scales = late ? (c & 0x0f0fu) | (a >> 2 & 0x3030u) : a & 0x3f3fu;
      const uint32_t mins = late ? (c >> 4 & 0x0f0fu) | (b >> 2 & 0x3030u) : b & 0x3f3fu;
      const float x0 = sums.x + sums.y, x1 = sums.z + sums.w;
      const float scaled = byte_as_float(scales, 0) * (s.of[0][0] - 128 * x0) +
                           byte_as_float(scales, 1) * (s.of[1][0] - 128 * x1);
      const float least = byte_as_float(mins, 0) * x0 + byte_as_float(mins, 1) * x1;
      const float2 d = __half22float2(*reinterpret_cast<const __half2*>(&head.x));
      return d.x * scaled - d.y * least;
    }
  };
};

struct RelayQ6Blocks {
  static constexpr int kBytes = sizeof(BlockQ6_K);
  static constexpr bool kSplit = true;
  static constexpr bool kHalves = true;

  struct Row {
    const uint8_t* at;
    __device__ Row(const uint8_t* w, RelayLane) : at(w) {}
    __device__ uint4 pairs(int j, RelayLane lane) const {
      const int quarter = j % 4;
      const uint8_t* ql = at + j / 4 * 64 + quarter % 2 * 32 + 4 * lane.t;
      const uint8_t* qh = at + offsetof(BlockQ6_K, qh) + j / 4 * 32 + 4 * lane.t;
      const auto half = [&](int i) {
        const uint32_t low = load_u16x2(ql + 16 * i) >> quarter / 2 * 4 & 0x0f0f0f0fu;
        return low | (load_u16x2(qh + 16 * i) >> 2 * quarter & 0x03030303u) << 4;
      };
      return bytes_to_pairs(half(0), half(1));
    }
    __device__ float weigh(const RelayGroups<true>& s, const float4& sums, int,
                           RelayLane lane) const {
      const auto* scales =
          reinterpret_cast<const int8_t*>(at + offsetof(BlockQ6_K, scales) + 4 * lane.t);
      const float sum = static_cast<float>(scales[0]) * (s.of[0][0] - 160 * sums.x) +
                        static_cast<float>(scales[1]) * (s.of[0][1] - 160 * sums.y) +
                        static_cast<float>(scales[2]) * (s.of[1][0] - 160 * sums.z) +
                        static_cast<float>(scales[3]) * (s.of[1][1] - 160 * sums.w);
      return f16_at(at + offsetof(BlockQ6_K, d)) * sum;
    }
  };
};

// Group j of both rows, g and g + 8.
template <class Format>
__device__ __forceinline__ void multiply_group(int j, const typename Format::Row& row,
                                               const typename Format::Row& other,
                                               const RelayColumns& x, RelayLane lane,
                                               RelayGroups<Format::kHalves> (&s)[2]) {
  const uint4 w = row.pairs(j, lane), v = other.pairs(j, lane);
  const uint32_t first[4] = {w.x, v.x, w.y, v.y}, second[4] = {w.z, v.z, w.w, v.w};
  constexpr int kSums = Format::kHalves ? 2 : 1;
  float c[kSums][4] = {};
  ptx::mma_16816<__nv_bfloat16>(c[0], first, x.first[0], x.first[1]);
  ptx::mma_16816<__nv_bfloat16>(c[kSums - 1], second, x.second[0], x.second[1]);
#pragma unroll
  for (int i = 0; i < kSums; ++i) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const float product = j % 2 ? c[i][2 * r + 1] : c[i][2 * r];
      float& its = j % 2 ? s[r].of[1][i] : s[r].of[0][i];
      its = lane.t == j / 2 ? product : its;
    }
  }
}

// Adds this lane's share of `bytes` of rows g and g + 8 times x to sum; x [bytes' elements] and its
// sums are where the rows' parts begin.
template <class Format>
__device__ __forceinline__ void multiply_tile(const uint8_t* row, const uint8_t* other, int bytes,
                                              const uint8_t* x, const float* x_sums,
                                              float (&sum)[2]) {
  constexpr int kGroupBytes = Format::kBytes / 8;
  const RelayLane lane;
#pragma unroll 1
  for (; bytes > 0; bytes -= Format::kBytes) {
    const RelayColumns columns(x, Format::kSplit, lane);
    const float4 sums = reinterpret_cast<const float4*>(x_sums)[lane.t];
    const typename Format::Row rows[2] = {{row, lane}, {other, lane}};
    RelayGroups<Format::kHalves> s[2] = {};
    const int groups = min(bytes / kGroupBytes, 8);
    if (bytes >= Format::kBytes) {
#pragma unroll
      for (int j = 0; j < 8; ++j) multiply_group<Format>(j, rows[0], rows[1], columns, lane, s);
    } else {
#pragma unroll 1
      for (int j = 0; j < groups; ++j) {
        multiply_group<Format>(j, rows[0], rows[1], columns, lane, s);
      }
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) sum[r] += rows[r].weigh(s[r], sums, groups, lane);
    row += Format::kBytes, other += Format::kBytes;
    x += 512, x_sums += 16;
  }
}

// A slot's rows by their dtype.
__device__ __forceinline__ void multiply_tile(DType dtype, const uint8_t* row, const uint8_t* other,
                                              int bytes, const uint8_t* x, const float* x_sums,
                                              float (&sum)[2]) {
#define BRAID_RELAY_TILE(type, ...) \
  case DType::type:                 \
    return multiply_tile<__VA_ARGS__>(row, other, bytes, x, x_sums, sum)
  switch (dtype) {
    BRAID_RELAY_TILE(q4_0, RelayBlocks<DType::q4_0, BlockQ4_0>);
    BRAID_RELAY_TILE(q4_1, RelayBlocks<DType::q4_1, BlockQ4_1>);
    BRAID_RELAY_TILE(q5_0, RelayBlocks<DType::q5_0, BlockQ5_0>);
    BRAID_RELAY_TILE(q5_1, RelayBlocks<DType::q5_1, BlockQ5_1>);
    BRAID_RELAY_TILE(q8_0, RelayBlocks<DType::q8_0, BlockQ8_0>);
    BRAID_RELAY_TILE(q4_k, RelaySuperBlocks<BlockQ4_K, false>);
    BRAID_RELAY_TILE(q5_k, RelaySuperBlocks<BlockQ5_K, true>);
    BRAID_RELAY_TILE(q6_k, RelayQ6Blocks);
    default:
      return multiply_tile<RelayBlocks<DType::bf16, uint16_t>>(row, other, bytes, x, x_sums, sum);
  }
#undef BRAID_RELAY_TILE
}

}  // namespace braid::cuda
