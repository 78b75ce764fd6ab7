#pragma once

#include "braid/model/family.h"

namespace braid {

// A model on disk: its family, its hyper-parameters and its weights, mapped and not yet read. The
// weights are checked against the configuration when it is opened. Shared by all ranks; immutable.
class Model {
 public:
  // Fails as open_model_file does; with kUnsupported on an unknown architecture or a tensor that
  // the family would leave unused; with kMalformed on a missing weight or a wrong shape.
  explicit Model(const std::string& path);

  const ModelFile& file() const { return file_; }
  const WeightSource& source() const { return weights_of(file_); }
  const ModelFamily& family() const { return family_; }
  const ModelConfig& config() const { return config_; }

  // The logical forward pass for a capacity.
  Program forward(const ForwardShape& shape) const;

  // A weight in place, by canonical name.
  TensorView weight(std::string_view canonical) const;

  // What the KV cache is kept in unless asked otherwise: as precise as the weights, f16 at most for
  // quantized ones.
  DType default_kv_dtype() const;

  int64_t parameters() const { return parameters_; }
  int64_t weight_bytes() const { return weight_bytes_; }

 private:
  std::string file_name(std::string_view canonical) const;
  void check_weights();

  ModelFile file_;
  const ModelFamily& family_;
  ModelConfig config_;
  int64_t parameters_ = 0;
  int64_t weight_bytes_ = 0;
};

}  // namespace braid
