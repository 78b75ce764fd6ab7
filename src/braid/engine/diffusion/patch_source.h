#pragma once

#include <memory>
#include <string>

#include "braid/io/weight_source.h"

namespace braid {

// Weights in which a tensor is a matrix that the file may hold as a convolution without overlap:
// [C, channels, kh, kw] in the file, [C, channels * kh * kw] here.
class PatchSource : public WeightSource {
 public:
  PatchSource(std::shared_ptr<const WeightSource> weights, std::string tensor);

  std::optional<TensorView> find(std::string_view name) const override;
  std::optional<TensorType> find_type(std::string_view name) const override;
  std::vector<TensorInfo> tensors() const override { return weights_->tensors(); }
  const std::string& path() const override { return weights_->path(); }
  std::string description() const override { return weights_->description(); }

 private:
  Shape flat(std::string_view name, const Shape& shape) const;

  std::shared_ptr<const WeightSource> weights_;
  std::string tensor_;
};

}  // namespace braid
