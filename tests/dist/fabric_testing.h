#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "braid/backend/cpu/thread_pool.h"
#include "braid/fabric/comm.h"
#include "braid/fabric/local/run_ranks.h"

// Data that every rank can compute for every other one, so that results are checked without
// communication, and memory whose edges are watched.
namespace braid::fabric {

inline uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

// Element i of rank's input of call `call`: a float in (-1, 1) with full mantissa, or a byte.
inline float float_of(uint64_t call, int rank, int64_t i) {
  const uint64_t bits = mix(call * 1000003 + mix(rank * 7919 + mix(i)));
  return static_cast<float>(static_cast<int32_t>(bits)) * 0x1p-31f;
}
inline std::byte byte_of(uint64_t call, int rank, int64_t i) {
  return static_cast<std::byte>(mix(call * 1000003 + mix(rank * 7919 + mix(i))));
}

// What a sum in rank order gives in f32: the collectives must give these bits.
inline float sum_of(uint64_t call, const std::vector<int>& ranks, int64_t i) {
  float sum = float_of(call, ranks[0], i);
  for (size_t p = 1; p < ranks.size(); ++p) sum += float_of(call, ranks[p], i);
  return sum;
}

// n elements that start as poison, between guards that must survive.
template <class T>
class Guarded {
 public:
  explicit Guarded(int64_t n) : n_(n), memory_((n + 2 * kGuard) * sizeof(T), kPoison) {}

  T* data() { return reinterpret_cast<T*>(memory_.data()) + kGuard; }
  int64_t size() const { return n_; }
  T& operator[](int64_t i) { return data()[i]; }
  bool guards_intact() const {
    const size_t edge = kGuard * sizeof(T);
    for (size_t i = 0; i < edge; ++i) {
      if (memory_[i] != kPoison || memory_[memory_.size() - 1 - i] != kPoison) return false;
    }
    return true;
  }

 private:
  static constexpr int64_t kGuard = 16;
  static constexpr unsigned char kPoison = 0xff;  // NaN as a float
  const int64_t n_;
  std::vector<unsigned char> memory_;
};

inline bool same_bits(float a, float b) {
  return std::memcmp(&a, &b, sizeof(a)) == 0;
}

// Uneven parts of about `total`, the same on all ranks; some are zero.
inline std::vector<int64_t> uneven_parts(uint64_t seed, int parts, int64_t total) {
  std::vector<int64_t> sizes(parts);
  for (int p = 0; p < parts; ++p) {
    const uint64_t draw = mix(seed * 31 + p);
    sizes[p] = draw % 4 == 0 ? 0 : static_cast<int64_t>(draw % (2 * total / parts + 2));
  }
  return sizes;
}

}  // namespace braid::fabric
