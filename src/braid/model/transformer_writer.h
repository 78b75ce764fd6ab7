#pragma once

#include <string>
#include <utility>

#include "braid/model/family.h"
#include "braid/ops/linear.h"

namespace braid {

// A base for writers of diffusion transformers' Programs: weights and linears by name.
class TransformerWriter {
 protected:
  TransformerWriter(std::string name, const WeightDtype& dtype_of, DType activations)
      : b_(std::move(name), {}), dtype_of_(dtype_of), dtype_(activations) {}

  ValueId weight(const std::string& name, const Shape& shape) {
    return b_.weight(name, {dtype_of_(name), shape});
  }
  ops::LinearWeights weights(const std::string& name, int64_t out, int64_t in, bool bias = true) {
    return {weight(name + ".weight", {out, in}), bias ? weight(name + ".bias", {out}) : kNoValue};
  }
  ValueId linear(const std::string& name, ValueId x, int64_t out) {
    return linear(name, x, out, dtype_);
  }
  ValueId linear(const std::string& name, ValueId x, int64_t out, DType dtype) {
    return ops::linear(b_, x, weights(name, out, b_.type(x).shape[1]), dtype);
  }
  ValueId f32_input(std::string name, int64_t rows, int64_t columns) {
    return b_.input(std::move(name), {DType::f32, {rows, columns}});
  }

  Builder b_;
  const WeightDtype& dtype_of_;
  const DType dtype_;  // of activations
};

}  // namespace braid
