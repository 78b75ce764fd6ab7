#include "braid/io/tensor_table.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "braid/base/error.h"
#include "braid/base/math.h"
#include "braid/io/quoted.h"

namespace braid {
namespace {

auto name_in(const std::vector<TensorRecord>& records) {
  return [&records](size_t i) -> std::string_view { return records[i].name; };
}

}  // namespace

std::optional<int64_t> checked_elems(std::span<const int64_t> shape) {
  std::optional<int64_t> product = 1;
  bool empty = false;
  for (int64_t dim : shape) {
    if (dim < 0) return std::nullopt;
    empty |= dim == 0;
    product = checked_mul(*product, std::max<int64_t>(dim, 1));
    if (!product) return std::nullopt;
  }
  return empty ? 0 : product;
}

TensorTable::TensorTable(std::string file, std::vector<TensorRecord> records, std::string readable)
    : file_(std::move(file)),
      readable_(std::move(readable)),
      records_(std::move(records)),
      index_(records_.size(), name_in(records_)) {
  if (const auto name = index_.duplicate(name_in(records_))) {
    fail(ErrorCode::kMalformed, "{}: tensor {} is listed twice", file_, quoted(*name));
  }
}

std::vector<TensorInfo> TensorTable::infos() const {
  std::vector<TensorInfo> out;
  out.reserve(records_.size());
  for (const TensorRecord& r : records_) out.push_back({r.name, r.type, r.shape, r.bytes});
  return out;
}

const TensorRecord* TensorTable::find(std::string_view name) const {
  const auto at = index_.find(name, name_in(records_));
  return at ? &records_[*at] : nullptr;
}

TensorType TensorTable::type(const TensorRecord& record) const {
  const auto unsupported = [&](const std::string& why) {
    fail(ErrorCode::kUnsupported, "{}: tensor {}: {}", file_, quoted(record.name), why);
  };
  if (!record.dtype) {
    unsupported(fmt::format("type {} is not supported, {} are", quoted(record.type), readable_));
  }
  if (record.shape.size() > Shape::kMaxRank) {
    unsupported(fmt::format("has {} dimensions, at most {} are supported", record.shape.size(),
                            Shape::kMaxRank));
  }
  Shape shape;
  for (int64_t dim : record.shape) {
    if (dim > kMaxDim) {
      unsupported(fmt::format("shape [{}] has a dimension above {}", fmt::join(record.shape, ", "),
                              kMaxDim));
    }
    shape.push_back(dim);
  }
  return {*record.dtype, shape};
}

TensorView TensorTable::view(const TensorRecord& record, std::span<const std::byte> bytes) const {
  const TensorType known = type(record);
  // The view is read-only by convention; a write would fault on the read-only mapping.
  return make_view(const_cast<std::byte*>(bytes.data()) + record.offset, known.dtype, known.shape);
}

}  // namespace braid
