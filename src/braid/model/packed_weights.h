#pragma once

#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "braid/io/weight_source.h"
#include "braid/model/family.h"

namespace braid {

// Weights of a file that share a tensor with others (ModelFamily::packed), by canonical name.
// A weight whose rows follow each other is a view into the file. Rows that lie apart are copied
// when the weight is first asked for, as many bytes as the weight has. Thread-safe.
class PackedWeights {
 public:
  // `source`, `family` and `config` outlive the weights.
  PackedWeights(const WeightSource& source, const ModelFamily& family, const ModelConfig& config)
      : source_(source), family_(family), config_(config) {}

  // A weight's place; nothing: the weight has its own tensor.
  std::optional<PackedRows> find(std::string_view canonical) const;
  // Both fail with kNotFound for a missing tensor, with kMalformed for another number of rows.
  // `tensor` is the file's name of the tensor that holds the rows.
  TensorType type(const std::string& tensor, const PackedRows& packed) const;
  TensorView view(std::string_view canonical, const std::string& tensor,
                  const PackedRows& packed) const;

 private:
  const WeightSource& source_;
  const ModelFamily& family_;
  const ModelConfig& config_;
  mutable std::mutex mutex_;
  mutable std::map<std::string, std::vector<std::byte>, std::less<>> copies_;
};

}  // namespace braid
