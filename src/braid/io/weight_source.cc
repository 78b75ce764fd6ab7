#include "braid/io/weight_source.h"

#include "braid/base/error.h"
#include "braid/io/quoted.h"

namespace braid {

std::vector<std::string_view> WeightSource::names() const {
  std::vector<std::string_view> out;
  for (const TensorInfo& tensor : tensors()) out.push_back(tensor.name);
  return out;
}

TensorView WeightSource::get(std::string_view name) const {
  if (const auto view = find(name)) return *view;
  fail(ErrorCode::kNotFound, "{}: there is no tensor {}", path(), quoted(name));
}

TensorView WeightSource::get(std::string_view name, const Shape& expected) const {
  const TensorView view = get(name);
  if (view.shape != expected) {
    fail(ErrorCode::kMalformed, "{}: tensor {} has shape {}, the model wants {}", path(),
         quoted(name), to_string(view.shape), to_string(expected));
  }
  return view;
}

}  // namespace braid
