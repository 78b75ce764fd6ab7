#pragma once

#include <cstddef>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "braid/model/model_shape.h"
#include "braid/tensor/view.h"

namespace braid {

// The drawing of a random weight: norms are ones, biases zeros, matrices normal numbers, or blocks
// of random bits with scales for an equal deviation.
struct RandomWeight {
  float mean = 0;
  float stddev = 0;
};

// Weights without a file, for benchmarks: every value depends on the seed, its tensor and its place
// alone. The host's copy of a tensor is made at the first request. Thread-safe.
class RandomWeights {
 public:
  // Weights of the shape's forward pass, by canonical name. Fails with kInvalidArgument if a row is
  // no whole number of the type's blocks.
  RandomWeights(const ModelShape& shape, uint64_t seed);
  // For a network's Programs, whose weights keep their names and types. A tensor's seed comes from
  // its name (random_seed), so others can make equal weights.
  RandomWeights(std::span<const Program> programs, uint64_t seed);

  struct Tensor {
    DType dtype = DType::f32;
    Shape shape;
    uint64_t seed = 0;
    RandomWeight draw;
  };
  const std::map<std::string, Tensor, std::less<>>& tensors() const { return tensors_; }
  TensorView get(std::string_view name) const;  // on the host

 private:
  std::map<std::string, Tensor, std::less<>> tensors_;
  mutable std::mutex mutex_;
  mutable std::map<std::string, std::vector<std::byte>, std::less<>> made_;
  mutable std::map<std::string, std::vector<std::byte*>, std::less<>> matrices_;
};

// A tensor's seed: the finalizer of SplitMix64 over `seed` + FNV-1a(name), 64 bits each.
uint64_t random_seed(uint64_t seed, std::string_view name);

}  // namespace braid
