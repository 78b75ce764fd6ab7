#pragma once

#include <memory>
#include <string>

#include "braid/io/weight_source.h"
#include "braid/model/random_weights.h"

namespace braid {

// Random weights in the place of a file's.
class RandomSource : public WeightSource {
 public:
  // `origin` stands in messages.
  RandomSource(std::string origin, std::span<const Program> programs, uint64_t seed = 0);

  std::optional<TensorView> find(std::string_view name) const override;
  std::optional<TensorType> find_type(std::string_view name) const override;
  std::vector<TensorInfo> tensors() const override;
  const std::string& path() const override { return origin_; }
  std::string description() const override;

  const RandomWeights& weights() const { return weights_; }

 private:
  std::string origin_;
  RandomWeights weights_;
};

}  // namespace braid
