#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "braid/io/name_index.h"
#include "braid/tensor/view.h"

namespace braid {

// A tensor as listed by its file. A reader has checked that `bytes` follows from type and shape and
// that [offset, offset + bytes) lies inside the file.
struct TensorRecord {
  std::string name;
  std::string type;            // as the file's format calls it
  std::optional<DType> dtype;  // nothing: a type that Braid does not compute with
  std::vector<int64_t> shape;  // outermost first
  int64_t offset = 0;          // from the start of the file
  int64_t bytes = 0;
};

// A tensor's description, without its data.
struct TensorType {
  DType dtype = DType::f32;
  Shape shape;

  int64_t bytes() const {
    return shape.rows() * bytes_of(dtype, shape.rank() == 0 ? 1 : shape[-1]);
  }
};

// A file's facts about a tensor, for listings; valid while its source lives.
struct TensorInfo {
  std::string_view name;
  std::string_view type;           // the format's name for it; Braid may lack the type
  std::span<const int64_t> shape;  // outermost first
  int64_t bytes = 0;
};

// The number of elements in a shape from a file; nothing for a negative dimension, or if
// the product overflows even without its zeros (so no order of multiplying can
// overflow).
std::optional<int64_t> checked_elems(std::span<const int64_t> shape);

// A file's tensors by name.
class TensorTable {
 public:
  static constexpr int64_t kMaxDim = INT32_MAX;  // kernels index one dimension with 32 bits

  TensorTable() = default;
  // Fails with kMalformed if two tensors share a name. `readable` lists Braid's types by the file
  // format's names, for messages.
  TensorTable(std::string file, std::vector<TensorRecord> records, std::string readable);

  const std::vector<TensorRecord>& records() const { return records_; }  // in the file's order
  std::vector<TensorInfo> infos() const;
  const TensorRecord* find(std::string_view name) const;

  // Fails with kUnsupported for tensors that Braid cannot use: another type, more
  // than Shape::kMaxRank dimensions, one over kMaxDim.
  TensorType type(const TensorRecord& record) const;

  // The tensor in place over the whole file's `bytes`, at whatever address it lies. Fails as type()
  // does.
  TensorView view(const TensorRecord& record, std::span<const std::byte> bytes) const;

 private:
  std::string file_;
  std::string readable_;
  std::vector<TensorRecord> records_;
  NameIndex index_;
};

}  // namespace braid
