#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace braid {

// Text from a file, fit for a line of a message: in single quotes, control characters and non-UTF-8
// bytes written as \xNN, cut with "..." after `limit` bytes of input.
std::string quoted(std::string_view text, size_t limit = 64);

}  // namespace braid
