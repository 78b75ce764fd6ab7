#pragma once

#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "braid/io/weight_source.h"
#include "braid/model/family.h"

namespace braid {

// The experts of a model file by canonical name ("layers.3.mlp.experts.gate"), [E, out, in]: one
// tensor of all, one for each, or gate and up in one. Views reach into the file; nothing is copied.
// Thread-safe.
class ExpertWeights {
 public:
  // `source` outlives it. `gguf`: of the two forms of names.
  ExpertWeights(const WeightSource& source, const ModelFamily& family, bool gguf, int64_t experts)
      : source_(source), family_(family), gguf_(gguf), experts_(experts) {}

  static bool names(std::string_view canonical);  // whether it is an expert weight's

  // Their type, by the tensors that are there. Fails with kNotFound where an expert is missing;
  // with kMalformed where one differs from its fellows in type or shape, where their number is not
  // E, or where they are there in two forms.
  TensorType type(std::string_view canonical) const;
  // The tensors of the file that hold them; fails as type() does.
  std::vector<std::string> tensors(std::string_view canonical) const;
  TensorView view(std::string_view canonical) const;

 private:
  struct Place {
    std::vector<std::string> tensors;  // one, or one for each expert
    TensorType type;                   // [E, out, in]
    int64_t first_row = 0;             // of each expert's rows in the tensor
    int64_t rows = 0;                  // that an expert has there
  };
  const Place& place(std::string_view canonical) const;
  Place find(std::string_view layer, std::string_view part) const;

  const WeightSource& source_;
  const ModelFamily& family_;
  const bool gguf_;
  const int64_t experts_;
  mutable std::mutex mutex_;
  mutable std::map<std::string, Place, std::less<>> places_;
  mutable std::map<std::string, std::vector<std::byte*>, std::less<>> matrices_;
};

}  // namespace braid
