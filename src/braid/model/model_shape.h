#pragma once

#include <string>

#include "braid/model/family.h"

namespace braid {

// A model without weights, for planning, simulation and benchmarks with random weights.
struct ModelShape {
  const ModelFamily* family = nullptr;
  ModelConfig config;
  DType weight_dtype = DType::bf16;  // beside blocks norms, biases and routers are f32

  Program forward(const ForwardShape& shape) const {
    return family->forward(config, shape, [this](std::string_view name) {
      const bool row = name.ends_with("norm") || name.ends_with(".bias") ||
                       name.ends_with(".router") || name.ends_with(".shared_gate");
      return row && is_quantized(weight_dtype) ? DType::f32 : weight_dtype;
    });
  }
};

// Reads a config.json in Hugging Face's form. Fails as Model does on unknown content.
ModelShape read_model_shape(const std::string& path, DType weight_dtype = DType::bf16);

}  // namespace braid
