#include "braid/io/quoted.h"

#include <fmt/format.h>
#include <utf8proc.h>

#include <algorithm>
#include <iterator>

namespace braid {
namespace {

bool is_control(utf8proc_int32_t code) {
  return code < 0x20 || (code >= 0x7f && code < 0xa0) || code == 0x2028 || code == 0x2029;
}

}  // namespace

std::string quoted(std::string_view text, size_t limit) {
  std::string out = "'";
  size_t at = 0;
  while (at < text.size() && at < limit) {
    // Four bytes are the longest character: a view of 2^63 bytes must not overflow a signed size.
    const auto* bytes = reinterpret_cast<const utf8proc_uint8_t*>(text.data()) + at;
    const auto left = static_cast<utf8proc_ssize_t>(std::min<size_t>(text.size() - at, 4));
    utf8proc_int32_t code = 0;
    const utf8proc_ssize_t length = utf8proc_iterate(bytes, left, &code);
    if (length <= 0 || is_control(code)) {
      fmt::format_to(std::back_inserter(out), "\\x{:02x}", *bytes);
      ++at;
    } else {
      out.append(text.substr(at, static_cast<size_t>(length)));
      at += static_cast<size_t>(length);
    }
  }
  return out += at < text.size() ? "...'" : "'";
}

}  // namespace braid
