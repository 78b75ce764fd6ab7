#pragma once

#include <memory>
#include <optional>

#include "braid/model/family.h"
#include "braid/model/packed_weights.h"
#include "braid/model/random_weights.h"
#include "braid/model/stacked_weights.h"

namespace braid {

// A model: family, hyper-parameters and weights. Weights are mapped, not yet read, and checked
// against the configuration at opening. Shared by all ranks; immutable but for stretch().
class Model {
 public:
  // Fails as open_model_file does; with kUnsupported on an unknown architecture or a tensor that
  // the family would leave unused; with kMalformed on a missing weight or a wrong shape.
  explicit Model(const std::string& path);
  // A shape with random weights, for benchmarks; it has no file.
  Model(const ModelShape& shape, uint64_t seed);

  const ModelFile& file() const;
  const WeightSource& source() const { return weights_of(file()); }
  const RandomWeights* random() const { return random_.get(); }  // null for a model from a file
  const ModelFamily& family() const { return family_; }
  const ModelConfig& config() const { return config_; }

  // stretch_context() for the configuration, before any Runner has the model.
  void stretch(int64_t tokens) { stretch_context(config_, tokens); }

  // The logical forward pass for a capacity.
  Program forward(const ForwardShape& shape) const;

  // A weight in place, by canonical name.
  TensorView weight(std::string_view canonical) const;

  // The weight's type and bytes, without touching the bytes.
  TensorType weight_type(std::string_view canonical) const;
  int64_t weight_bytes(std::string_view canonical) const;

  // The KV cache's default dtype: as precise as the weights (the first that
  // a linear has), f16 at most for quantized ones.
  DType default_kv_dtype() const { return default_kv_dtype_; }

  int64_t parameters() const { return parameters_; }
  // Parameters that a token meets: among experts only the chosen.
  int64_t active_parameters() const { return active_parameters_; }
  int64_t weight_bytes() const { return weight_bytes_; }
  int64_t expert_bytes() const { return expert_bytes_; }  // the experts' part of weight_bytes()

 private:
  std::string file_name(std::string_view canonical) const;
  Program smallest_forward() const;
  void find_head();
  void check_weights(const Program& program);
  void count(std::string_view name, const TensorType& type);

  std::optional<ModelFile> file_;
  std::unique_ptr<RandomWeights> random_;
  std::unique_ptr<StackedWeights> stacked_;  // of a file
  std::unique_ptr<PackedWeights> packed_;    // null: of random weights
  const ModelFamily& family_;
  ModelConfig config_;
  std::string_view tied_ = "token_embd";  // the weight of a tied pair that the file holds
  int64_t parameters_ = 0;
  int64_t active_parameters_ = 0;
  int64_t weight_bytes_ = 0;
  int64_t expert_bytes_ = 0;
  DType default_kv_dtype_ = DType::f16;
};

}  // namespace braid
