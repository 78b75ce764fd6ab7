#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace braid {

// Text out of a file, made fit for one line of a message: in single quotes, control characters and
// bytes that are no UTF-8 written as \xNN, cut with "..." after `limit` bytes of input.
std::string quoted(std::string_view text, size_t limit = 64);

}  // namespace braid
