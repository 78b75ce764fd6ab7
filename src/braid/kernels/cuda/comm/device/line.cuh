#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "braid/kernels/cuda/comm/device/wait.cuh"

// Lines in staging memory: 16 bytes with kData bytes of a message and the epoch, or all data.
namespace braid::cuda {

// Each word of an unsent bare line: a NaN, or two NaNs. Equal words of a message travel as other
// NaNs.
constexpr uint32_t kNoWord = 0xffffffff;
constexpr uint32_t kOtherNan = 0x7fffffff;

// Words of a message at an odd address or at the message's end; bytes past `left` are zero, or
// stay. Out of line, to keep the path of whole units short.
__device__ __noinline__ inline void load_bytes(uint32_t* words, int num_words, const std::byte* p,
                                               int64_t left) {
  for (int w = 0; w < num_words; ++w) {
    uint32_t word = 0;
    for (int b = 0; b < 4; ++b) {
      if (4 * w + b < left) word |= static_cast<uint32_t>(p[4 * w + b]) << (8 * b);
    }
    words[w] = word;
  }
}
__device__ __noinline__ inline void store_bytes(const uint32_t* words, int num_words, std::byte* p,
                                                int64_t left) {
  for (int b = 0; b < 4 * num_words && b < left; ++b) {
    p[b] = static_cast<std::byte>(words[b / 4] >> (8 * (b % 4)));
  }
}

// A thread's portion: whole lines and, unless told otherwise, whole 16-byte loads.
template <int kData, int kLineCount = kData == 8 ? 2 : 4>
struct LineUnit {
  static_assert(kData == 8 || kData == 12 || kData == 16);
  static constexpr bool kBare = kData == 16;
  static constexpr int kLines = kLineCount;
  static constexpr int kBytes = kData * kLines;
  static constexpr int kWords = kBytes / 4;
  static constexpr int kLineWords = kData / 4;

  uint32_t words[kWords];

  __device__ void load(const std::byte* p, int64_t left, bool aligned) {
    if (aligned && left >= kBytes) {
#pragma unroll
      for (int v = 0; v < kWords / 4; ++v) {
        const uint4 x = reinterpret_cast<const uint4*>(p)[v];
        words[4 * v] = x.x;
        words[4 * v + 1] = x.y;
        words[4 * v + 2] = x.z;
        words[4 * v + 3] = x.w;
      }
      return;
    }
    if (aligned && left % 4 == 0) {  // the last unit of nearly every message
#pragma unroll
      for (int w = 0; w < kWords; ++w) {
        words[w] = 4 * w < left ? reinterpret_cast<const uint32_t*>(p)[w] : 0;
      }
      return;
    }
    uint32_t some[kWords];
    load_bytes(some, kWords, p, left);
#pragma unroll
    for (int w = 0; w < kWords; ++w) words[w] = some[w];
  }

  __device__ void store(std::byte* p, int64_t left, bool aligned) const {
    if (aligned && left >= kBytes) {
#pragma unroll
      for (int v = 0; v < kWords / 4; ++v) {
        reinterpret_cast<uint4*>(p)[v] =
            make_uint4(words[4 * v], words[4 * v + 1], words[4 * v + 2], words[4 * v + 3]);
      }
      return;
    }
    if (aligned && left % 4 == 0) {
#pragma unroll
      for (int w = 0; w < kWords; ++w) {
        if (4 * w < left) reinterpret_cast<uint32_t*>(p)[w] = words[w];
      }
      return;
    }
    uint32_t some[kWords];
#pragma unroll
    for (int w = 0; w < kWords; ++w) some[w] = words[w];
    store_bytes(some, kWords, p, left);
  }

  // Unit u of `units` in the slot: a unit's lines are `units` apart, to keep a warp's consecutive.
  __device__ void send(uint4* slot, int u, int units, uint32_t epoch) const {
#pragma unroll
    for (int k = 0; k < kLines; ++k) {
      const uint32_t* const d = words + k * kLineWords;
      if constexpr (kBare) {
        const auto sent = [](uint32_t w) { return w == kNoWord ? kOtherNan : w; };
        ptx::store_relaxed_system(slot + k * units + u,
                                  make_uint4(sent(d[0]), sent(d[1]), sent(d[2]), sent(d[3])));
      } else {
        ptx::store_relaxed_system(
            slot + k * units + u,
            make_uint4(d[0], d[1], kData == 12 ? d[kLineWords - 1] : 0, epoch));
      }
    }
  }

  // False, and words unspecified, if it did not come in time.
  __device__ bool receive(const CommView& view, int from, const uint4* slot, int u, int units,
                          uint32_t epoch) {
    uint4 lines[kLines];
    const auto is_there = [&](const uint4& line) {
      if constexpr (!kBare) return line.w == epoch;
      return line.x != kNoWord && line.y != kNoWord && line.z != kNoWord && line.w != kNoWord;
    };
    const bool ok = wait_until(
        view, from, epoch,
        [&] {
          bool all = true;
#pragma unroll
          for (int k = 0; k < kLines; ++k) {
            lines[k] = ptx::load_relaxed_system(slot + k * units + u);
          }
#pragma unroll
          for (int k = 0; k < kLines; ++k) all &= is_there(lines[k]);
          return all;
        },
        [&] {
          uint32_t seen = epoch;
#pragma unroll
          for (int k = 0; k < kLines; ++k) {
            if (!is_there(lines[k])) seen = kBare ? epoch - 1 : lines[k].w;
          }
          return seen;
        });
#pragma unroll
    for (int k = 0; k < kLines; ++k) {
      uint32_t* const d = words + k * kLineWords;
      d[0] = lines[k].x;
      d[1] = lines[k].y;
      if constexpr (kData != 8) d[2] = lines[k].z;
      if constexpr (kBare) d[3] = lines[k].w;
    }
    return ok;
  }

  // Bare lines, as if nobody had sent them.
  __device__ static void clear(uint4* slot, int u, int units) {
#pragma unroll
    for (int k = 0; k < kLines; ++k) {
      slot[k * units + u] = make_uint4(kNoWord, kNoWord, kNoWord, kNoWord);
    }
  }
};

// The staging slot of collective `epoch` for data from rank `from`, in a rank's staging memory.
template <bool kBare = false>
__device__ uint4* line_slot(const CommView& view, uint4* staging, int from, uint32_t epoch) {
  const int64_t slot = (epoch & 1) * view.ranks + from;
  if constexpr (kBare) return staging + 2 * view.ranks * view.lines + slot * (view.lines / 2);
  return staging + slot * view.lines;
}
// The same at the k-th rank after this rank, for data from this rank.
template <bool kBare = false>
__device__ uint4* slot_at(const CommView& view, int k, int peer, uint32_t epoch) {
  return line_slot<kBare>(view, k == 1 ? view.next_staging : view.staging[peer], view.rank, epoch);
}

// A message of no bytes takes a unit too: the protocol counts on a line between every two ranks.
// Lines carry at most 2^30 bytes.
template <int kData>
__device__ int line_units(int64_t bytes) {
  constexpr unsigned kBytes = LineUnit<kData>::kBytes;
  return bytes <= 0 ? 1 : (static_cast<unsigned>(bytes) + kBytes - 1) / kBytes;
}

__device__ inline bool is_aligned16(const void* p) {
  return (reinterpret_cast<uintptr_t>(p) & 15) == 0;
}

// A word of T's as f32 and back.
template <class T>
struct WordOf;

template <>
struct WordOf<float> {
  static constexpr int kElems = 1;
  __device__ static void unpack(uint32_t w, float* x) { x[0] = __uint_as_float(w); }
  __device__ static uint32_t pack(const float* x) { return __float_as_uint(x[0]); }
};
template <>
struct WordOf<__nv_bfloat16> {
  static constexpr int kElems = 2;
  __device__ static void unpack(uint32_t w, float* x) {
    x[0] = __uint_as_float(w << 16);
    x[1] = __uint_as_float(w & 0xffff0000u);
  }
  __device__ static uint32_t pack(const float* x) {
    const __nv_bfloat162 v = __floats2bfloat162_rn(x[0], x[1]);
    return reinterpret_cast<const uint32_t&>(v);
  }
};
template <>
struct WordOf<__half> {
  static constexpr int kElems = 2;
  __device__ static void unpack(uint32_t w, float* x) {
    const float2 v = __half22float2(reinterpret_cast<const __half2&>(w));
    x[0] = v.x;
    x[1] = v.y;
  }
  __device__ static uint32_t pack(const float* x) {
    const __half2 v = __floats2half2_rn(x[0], x[1]);
    return reinterpret_cast<const uint32_t&>(v);
  }
};

// Sums of words, in f32.
template <class T, int kWords>
struct WordSum {
  static constexpr int kElems = kWords * WordOf<T>::kElems;
  float x[kElems];

  __device__ void set(const uint32_t* words) {
#pragma unroll
    for (int w = 0; w < kWords; ++w) {
      WordOf<T>::unpack(words[w], x + w * WordOf<T>::kElems);
    }
  }
  __device__ void add(const uint32_t* words) {
#pragma unroll
    for (int w = 0; w < kWords; ++w) {
      float v[WordOf<T>::kElems];
      WordOf<T>::unpack(words[w], v);
#pragma unroll
      for (int i = 0; i < WordOf<T>::kElems; ++i) x[w * WordOf<T>::kElems + i] += v[i];
    }
  }
  __device__ void get(uint32_t* words) const {
#pragma unroll
    for (int w = 0; w < kWords; ++w) words[w] = WordOf<T>::pack(x + w * WordOf<T>::kElems);
  }
};

}  // namespace braid::cuda
