#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "braid/io/tensor_table.h"
#include "braid/tensor/view.h"

namespace braid {

// Named weights in mapped files, whatever the format. Views point straight into the mapping, or
// into a copy for tensors at odd addresses; they are read-only and live as long as the source.
// Nothing is read before it is touched or copied. Safe to use from several threads.
class WeightSource {
 public:
  virtual ~WeightSource() = default;

  // The tensor; nothing without a tensor of that name. Fails with kUnsupported for a tensor that
  // Braid cannot use (type, rank). If the address does not suit the elements, the first call copies
  // the tensor.
  virtual std::optional<TensorView> find(std::string_view name) const = 0;
  // Type and shape alone; fails as find() does, and touches no data.
  virtual std::optional<TensorType> find_type(std::string_view name) const = 0;
  virtual std::vector<TensorInfo> tensors() const = 0;  // in the order of the file
  virtual const std::string& path() const = 0;
  virtual std::string description() const = 0;  // "GGUF v3, 272 tensors"

  std::vector<std::string_view> names() const;
  // As find() and find_type(); fail with kNotFound without the tensor.
  TensorView get(std::string_view name) const;
  TensorType type(std::string_view name) const;
  // Fails with kMalformed, too, for another shape than expected.
  TensorType type(std::string_view name, const Shape& expected) const;
};

}  // namespace braid
