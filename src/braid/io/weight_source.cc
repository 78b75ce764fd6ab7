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

TensorType WeightSource::type(std::string_view name) const {
  if (const auto type = find_type(name)) return *type;
  fail(ErrorCode::kNotFound, "{}: there is no tensor {}", path(), quoted(name));
}

TensorType WeightSource::type(std::string_view name, const Shape& expected) const {
  const TensorType found = type(name);
  if (found.shape != expected) {
    fail(ErrorCode::kMalformed, "{}: tensor {} has shape {}, the model wants {}", path(),
         quoted(name), to_string(found.shape), to_string(expected));
  }
  return found;
}

}  // namespace braid
