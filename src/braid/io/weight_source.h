#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "braid/io/tensor_table.h"
#include "braid/tensor/view.h"

namespace braid {

// Named weights in mapped files, whatever the format. Views point straight into the mapping: they
// are read-only, live as long as the source, and nothing is read before it is touched. Safe to use
// from several threads.
class WeightSource {
 public:
  virtual ~WeightSource() = default;

  // The tensor, or nothing where there is none of that name. Fails with kUnsupported where it is
  // there and Braid cannot use it (type, rank, alignment).
  virtual std::optional<TensorView> find(std::string_view name) const = 0;
  virtual std::vector<TensorInfo> tensors() const = 0;  // in the order of the file
  virtual const std::string& path() const = 0;
  virtual std::string description() const = 0;  // "GGUF v3, 272 tensors"

  std::vector<std::string_view> names() const;
  // As find(); fails with kNotFound where there is none, and with kMalformed where its shape is not
  // the expected one.
  TensorView get(std::string_view name) const;
  TensorView get(std::string_view name, const Shape& expected) const;
};

}  // namespace braid
