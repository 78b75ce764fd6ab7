#pragma once

#include <array>
#include <string_view>

namespace braid {

// The alphabet that byte-level BPE spells bytes in: printable Latin-1 stands for itself, the other
// bytes for U+0100 and on. Each entry is the byte's character in UTF-8.
const std::array<std::string_view, 256>& byte_alphabet();
// The byte behind a character in the alphabet, or -1.
int byte_of(char32_t code);

}  // namespace braid
