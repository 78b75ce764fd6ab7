#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace braid::golden {

uint64_t fnv1a64(std::span<const std::byte> bytes);

// One random tensor: each element is base + scale * u, u uniform on [-1, 1).
struct TensorSpec {
  std::string name;            // Hugging Face's
  std::vector<int64_t> shape;  // outermost first
  double base = 0;
  double scale = 0;  // a multiple of 2^-12

  int64_t elems() const;
};

// f32 [shape], a pure function of (seed, spec), the same to the bit as tools/goldens/generator.py:
// splitmix64 (Steele, Lea, Flood 2014) on a key of FNV-1a; exact in double up to the last rounding.
std::vector<float> random_tensor(uint64_t seed, const TensorSpec& spec);

}  // namespace braid::golden
