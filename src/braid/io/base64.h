#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace braid {

// The bytes that `text` spells in base64 (RFC 4648, padded); nothing where it is not base64.
std::optional<std::string> decode_base64(std::string_view text);
std::string encode_base64(std::string_view bytes);

}  // namespace braid
