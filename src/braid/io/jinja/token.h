#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "braid/base/error.h"

namespace braid::jinja {

enum class TokenKind {
  data,            // text outside of tags, after trimming
  variable_begin,  // {{
  variable_end,
  block_begin,  // {%
  block_end,
  name,
  string,
  integer,
  floating,
  op,
  end,
};

struct Token {
  TokenKind kind = TokenKind::end;
  int line = 1;
  std::string text;  // the data, name, operator or unescaped string
  int64_t integer = 0;
  double number = 0;

  bool is_name(std::string_view name) const { return kind == TokenKind::name && text == name; }
  bool is_op(std::string_view op) const { return kind == TokenKind::op && text == op; }
};

std::string describe(const Token& token);  // for error messages

// Templates longer than this are refused; the longest published are some tens of kilobytes.
inline constexpr size_t kMaxSource = size_t{4} << 20;

// Jinja's tokens with trim_blocks and lstrip_blocks on and keep_trailing_newline off. Throws
// kMalformed with the line. The last token is `end`.
std::vector<Token> tokenize(std::string_view source);

template <class... A>
[[noreturn]] void fail_syntax(int line, fmt::format_string<A...> format, A&&... args) {
  fail(ErrorCode::kMalformed, "chat template line {}: {}", line,
       fmt::format(format, std::forward<A>(args)...));
}

}  // namespace braid::jinja
