#pragma once

#include <cstdint>
#include <optional>
#include <random>
#include <span>

#include "braid/tensor/dtype.h"

namespace braid {

// The random numbers of torch.Generator("cpu"): integers bit for bit, normals to the last place or
// two. Draws follow torch's order: a call of normals() is a torch.randn with the same number of f32
// elements. Normals of bf16 or f16 are f32 normals, rounded, as torch 2.15 draws multiples of 16.
class TorchGenerator {
 public:
  // As torch, of a 64-bit seed the low 32 bits count. `type`: of normals, a float
  // type.
  explicit TorchGenerator(uint64_t seed, DType type = DType::f32)
      : type_(type), engine_(static_cast<uint32_t>(seed)) {}

  uint32_t next() { return engine_(); }
  void normals(std::span<float> out);

 private:
  float uniform();
  double uniform_f64();
  double normal_f64();
  void fill_16(std::span<float, 16> block);
  void draw(std::span<float> out);

  DType type_;
  std::mt19937 engine_;
  std::optional<double> kept_;  // the second normal of a pair, for the next single draw
};

}  // namespace braid
