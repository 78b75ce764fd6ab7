#include "braid/model/model_shape.h"

namespace braid {

ModelShape read_model_shape(const std::string& path, DType weight_dtype) {
  const JsonObject json = JsonObject::read(path);
  ModelShape shape;
  shape.family = &family_of(json, path);
  shape.config = shape.family->hf_config(json);
  shape.config.family = shape.family->name;
  shape.weight_dtype = weight_dtype;
  check_config(shape.config, path);
  return shape;
}

}  // namespace braid
