#pragma once

#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "braid/io/weight_source.h"
#include "braid/model/family.h"

namespace braid {

// Three-dimensional weights in a model file, by canonical name.
//   "layers.3.mlp.experts.gate" [E, out, in]: a tensor for all experts, a tensor each, or gate and
//   up in a single tensor
//   "layers.3.attn.k_b", ".v_b" [H, Dn or Dv, R]: each head's rows in kv_b, or separate tensors
// Views reach into the file; nothing is copied. Thread-safe.
class StackedWeights {
 public:
  // `source`, `family` and `config` outlive the object. `gguf`: names in GGUF's form.
  StackedWeights(const WeightSource& source, const ModelFamily& family, const ModelConfig& config,
                 bool gguf)
      : source_(source), family_(family), config_(config), gguf_(gguf) {}

  static bool names(std::string_view canonical);  // whether it is such a weight's
  static bool names_experts(std::string_view canonical);

  // Type of the weights, by present tensors. Fails with kNotFound for a missing tensor; with
  // kMalformed if an expert differs from the others in type or shape, if the number of experts is
  // not E, or if weights are present in two forms.
  TensorType type(std::string_view canonical) const;
  // The file's tensors with these weights; fails as type() does.
  std::vector<std::string> tensors(std::string_view canonical) const;
  TensorView view(std::string_view canonical) const;

 private:
  struct Place {
    std::vector<std::string> tensors;  // one, or one per matrix
    TensorType type;                   // of all: matrices, rows, columns
    int64_t first_row = 0;             // a matrix' first row, among its rows in the tensor
    int64_t rows = 0;                  // rows of a matrix in the tensor
  };
  const Place& place(std::string_view canonical) const;
  Place find_experts(std::string_view layer, std::string_view part) const;
  Place find_heads(std::string_view canonical) const;

  const WeightSource& source_;
  const ModelFamily& family_;
  const ModelConfig& config_;
  const bool gguf_;
  mutable std::mutex mutex_;
  mutable std::map<std::string, Place, std::less<>> places_;
  mutable std::map<std::string, std::vector<std::byte*>, std::less<>> matrices_;
};

}  // namespace braid
