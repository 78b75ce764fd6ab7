#pragma once

#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "braid/io/weight_source.h"
#include "braid/model/family.h"

namespace braid {

// Weights of three dimensions in a model file, by canonical name.
//   "layers.3.mlp.experts.gate" [E, out, in]: one tensor of all, one for each expert, or gate and
//   up in one "layers.3.attn.k_b", ".v_b" [H, Dn or Dv, R]: rows of each head's part of kv_b, or
//   tensors of their own
// Views reach into the file; nothing is copied. Thread-safe.
class StackedWeights {
 public:
  // `source`, `family` and `config` outlive it. `gguf`: of the two forms of names.
  StackedWeights(const WeightSource& source, const ModelFamily& family, const ModelConfig& config,
                 bool gguf)
      : source_(source), family_(family), config_(config), gguf_(gguf) {}

  static bool names(std::string_view canonical);  // whether it is such a weight's
  static bool names_experts(std::string_view canonical);

  // Their type, by the tensors that are there. Fails with kNotFound where a tensor is missing; with
  // kMalformed where an expert differs from its fellows in type or shape, where their number is not
  // E, or where weights are there in two forms.
  TensorType type(std::string_view canonical) const;
  // The tensors of the file that hold them; fails as type() does.
  std::vector<std::string> tensors(std::string_view canonical) const;
  TensorView view(std::string_view canonical) const;

 private:
  struct Place {
    std::vector<std::string> tensors;  // one, or one for each matrix
    TensorType type;                   // of all: matrices, rows, columns
    int64_t first_row = 0;             // of a matrix, among the rows that belong to it there
    int64_t rows = 0;                  // that belong to a matrix there
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
