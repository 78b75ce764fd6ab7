#include "braid/model/packed_weights.h"

#include <cstring>

namespace braid {

std::optional<PackedRows> PackedWeights::find(std::string_view canonical) const {
  return family_.packed ? family_.packed(config_, canonical) : std::nullopt;
}

TensorType PackedWeights::type(const std::string& tensor, const PackedRows& packed) const {
  TensorType type = source_.type(tensor);
  if (type.shape.rank() < 1 || type.shape[0] != packed.tensor_rows) {
    fail(ErrorCode::kMalformed, "{}: tensor '{}' has shape {}, wanted are {} rows", source_.path(),
         tensor, to_string(type.shape), packed.tensor_rows);
  }
  type.shape[0] = 0;
  for (const Range& rows : packed.rows) type.shape[0] += rows.size();
  return type;
}

TensorView PackedWeights::view(std::string_view canonical, const std::string& tensor,
                               const PackedRows& packed) const {
  const TensorView whole = source_.get(tensor);
  if (packed.rows.size() == 1) {
    return slice_rows(whole, packed.rows[0].begin, packed.rows[0].end);
  }
  const TensorType kind = type(tensor, packed);
  const std::lock_guard lock(mutex_);
  auto [at, fresh] = copies_.try_emplace(std::string(canonical));
  std::vector<std::byte>& copy = at->second;
  if (fresh) {
    copy.resize(static_cast<size_t>(kind.bytes()));
    std::byte* to = copy.data();
    for (const Range& rows : packed.rows) {
      const TensorView part = slice_rows(whole, rows.begin, rows.end);
      std::memcpy(to, part.data, part.bytes());
      to += part.bytes();
    }
  }
  return make_view(copy.data(), kind.dtype, kind.shape);
}

}  // namespace braid
