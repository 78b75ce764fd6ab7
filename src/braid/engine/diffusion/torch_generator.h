#pragma once

#include <cstdint>
#include <optional>
#include <random>
#include <span>

namespace braid {

// The random numbers of torch.Generator("cpu"): integers bit for bit, normals to the last place or
// two. Draws follow torch's order: a call of normals() is a torch.randn with the same number of f32
// elements.
class TorchGenerator {
 public:
  // As torch, of a 64-bit seed the low 32 bits count.
  explicit TorchGenerator(uint64_t seed) : engine_(static_cast<uint32_t>(seed)) {}

  uint32_t next() { return engine_(); }
  void normals(std::span<float> out);

 private:
  float uniform();
  double uniform_f64();
  double normal_f64();
  void fill_16(std::span<float, 16> block);

  std::mt19937 engine_;
  std::optional<double> kept_;  // the second normal of a pair, for the next single draw
};

}  // namespace braid
