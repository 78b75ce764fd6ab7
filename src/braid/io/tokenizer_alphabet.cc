#include "braid/io/tokenizer_alphabet.h"

#include <algorithm>
#include <cstdint>
#include <string>

#include "braid/io/tokenizer_utf8.h"

namespace braid {
namespace {

bool is_printable(int b) {
  return (b >= '!' && b <= '~') || (b >= 0xa1 && b <= 0xac) || (b >= 0xae && b <= 0xff);
}

struct ByteAlphabet {
  std::array<char[2], 256> chars;
  std::array<std::string_view, 256> views;
  std::array<int16_t, 0x144> bytes;

  ByteAlphabet() {
    bytes.fill(-1);
    int next = 0x100;
    for (int b = 0; b < 256; ++b) {
      const int code = is_printable(b) ? b : next++;
      bytes[code] = static_cast<int16_t>(b);
      std::string text;
      append_utf8(static_cast<char32_t>(code), text);
      std::copy(text.begin(), text.end(), chars[b]);
      views[b] = {chars[b], text.size()};
    }
  }
};

const ByteAlphabet& alphabet() {
  static const ByteAlphabet instance;
  return instance;
}

}  // namespace

const std::array<std::string_view, 256>& byte_alphabet() {
  return alphabet().views;
}

int byte_of(char32_t code) {
  return code < alphabet().bytes.size() ? alphabet().bytes[code] : -1;
}

}  // namespace braid
