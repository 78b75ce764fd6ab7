#include "braid/model/packed_weights.h"

#include <cstring>

namespace braid {

std::optional<PackedRows> PackedWeights::find(std::string_view canonical) const {
  return family_.hf_packed ? family_.hf_packed(config_, canonical) : std::nullopt;
}

TensorType PackedWeights::type(const PackedRows& packed) const {
  TensorType type = source_.type(packed.tensor);
  if (type.shape.rank() < 1 || type.shape[0] != packed.tensor_rows) {
    fail(ErrorCode::kMalformed, "{}: tensor '{}' has shape {}, wanted are {} rows", source_.path(),
         packed.tensor, to_string(type.shape), packed.tensor_rows);
  }
  type.shape[0] = 0;
  for (const Range& rows : packed.rows) type.shape[0] += rows.size();
  return type;
}

TensorView PackedWeights::view(std::string_view canonical, const PackedRows& packed) const {
  const TensorView whole = source_.get(packed.tensor);
  if (packed.rows.size() == 1) {
    return slice_rows(whole, packed.rows[0].begin, packed.rows[0].end);
  }
  const TensorType kind = type(packed);
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
