#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace braid {

// A tensor to write: f32, row-major.
struct NamedTensor {
  std::string name;
  std::vector<int64_t> shape;
  std::vector<float> values;
};

// The bytes of a safetensors file with these tensors, in this order. Throws std::logic_error if a
// shape and its values differ or a name occurs twice.
std::string safetensors_bytes(std::span<const NamedTensor> tensors);

}  // namespace braid
