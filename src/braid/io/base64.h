#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace braid {

// The bytes spelled by `text` in base64 (RFC 4648, padded); nothing for other text.
std::optional<std::string> decode_base64(std::string_view text);
std::string encode_base64(std::string_view bytes);

}  // namespace braid
