#pragma once

#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "braid/io/weight_source.h"
#include "braid/tensor/quant.h"

namespace braid::golden {

// Another source's weights, with infinity in a tensor.
class Spoiled : public WeightSource {
 public:
  Spoiled(std::shared_ptr<const WeightSource> weights, std::string name)
      : weights_(std::move(weights)), name_(std::move(name)) {
    const TensorView view = weights_->get(name_);
    bytes_.assign(static_cast<const std::byte*>(view.data),
                  static_cast<const std::byte*>(view.data) + view.bytes());
    const float most = std::numeric_limits<float>::infinity();
    quantize_row(view.dtype, &most, bytes_.data(), 1);
  }
  std::optional<TensorView> find(std::string_view name) const override {
    auto view = weights_->find(name);
    if (view && name == name_) view->data = const_cast<std::byte*>(bytes_.data());
    return view;
  }
  std::optional<TensorType> find_type(std::string_view name) const override {
    return weights_->find_type(name);
  }
  std::vector<TensorInfo> tensors() const override { return weights_->tensors(); }
  const std::string& path() const override { return weights_->path(); }
  std::string description() const override { return weights_->description(); }

 private:
  std::shared_ptr<const WeightSource> weights_;
  std::string name_;
  std::vector<std::byte> bytes_;
};

}  // namespace braid::golden
