#include "braid/io/tokenizer_char_map.h"

#include <cstring>

#include "braid/base/error.h"

namespace braid {
namespace {

// Fields of a unit; a unit whose parent has the leaf flag holds a value instead.
constexpr uint32_t kLabelBits = 0x800000ff;  // the byte that leads here; bit 31 marks a value
bool has_leaf(uint32_t unit) {
  return unit >> 8 & 1;
}
uint32_t offset(uint32_t unit) {
  return unit >> 10 << (unit & 0x200 ? 8 : 0);
}
uint32_t value(uint32_t unit) {
  return unit & 0x7fffffff;
}

}  // namespace

CharMap::CharMap(std::string_view blob) {
  uint32_t bytes = 0;
  if (blob.size() >= sizeof bytes) std::memcpy(&bytes, blob.data(), sizeof bytes);
  if (bytes == 0 || bytes % sizeof(uint32_t) != 0 || bytes > blob.size() - sizeof bytes) {
    fail(ErrorCode::kMalformed, "a character map of {} bytes has a trie of {} bytes", blob.size(),
         bytes);
  }
  units_.resize(bytes / sizeof(uint32_t));
  std::memcpy(units_.data(), blob.data() + sizeof bytes, bytes);
  texts_ = blob.substr(sizeof bytes + bytes);
}

std::optional<std::string_view> CharMap::find(std::string_view text) const {
  size_t node = offset(units_[0]);
  for (const char c : text) {
    const auto byte = static_cast<uint8_t>(c);
    node ^= byte;
    if (byte == 0 || node >= units_.size() || (units_[node] & kLabelBits) != byte) break;
    const uint32_t unit = units_[node];
    node ^= offset(unit);
    if (!has_leaf(unit)) continue;
    if (node >= units_.size() || value(units_[node]) > texts_.size()) break;
    const std::string_view rest = std::string_view(texts_).substr(value(units_[node]));
    return rest.substr(0, rest.find('\0'));
  }
  return std::nullopt;
}

}  // namespace braid
