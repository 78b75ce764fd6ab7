#include "braid/engine/diffusion/patch_source.h"

#include <utility>

namespace braid {

PatchSource::PatchSource(std::shared_ptr<const WeightSource> weights, std::string tensor)
    : weights_(std::move(weights)), tensor_(std::move(tensor)) {}

Shape PatchSource::flat(std::string_view name, const Shape& shape) const {
  if (name != tensor_ || shape.rank() != 4) return shape;
  return {shape[0], shape[1] * shape[2] * shape[3]};
}

std::optional<TensorView> PatchSource::find(std::string_view name) const {
  const auto view = weights_->find(name);
  if (!view || name != tensor_) return view;
  return make_view(view->data, view->dtype, flat(name, view->shape));
}

std::optional<TensorType> PatchSource::find_type(std::string_view name) const {
  auto type = weights_->find_type(name);
  if (type) type->shape = flat(name, type->shape);
  return type;
}

}  // namespace braid
