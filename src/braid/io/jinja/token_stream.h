#pragma once

#include <utility>
#include <vector>

#include "braid/io/jinja/token.h"

namespace braid::jinja {

// The tokens of a template, read in order.
class TokenStream {
 public:
  explicit TokenStream(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  const Token& current() const { return tokens_[at_]; }
  const Token& look() const { return tokens_[at_ + 1 < tokens_.size() ? at_ + 1 : at_]; }
  const Token& next() {
    const Token& token = tokens_[at_];
    if (at_ + 1 < tokens_.size()) ++at_;
    return token;
  }
  int line() const { return current().line; }

  bool skip_name(std::string_view name) {
    const bool match = current().is_name(name);
    if (match) next();
    return match;
  }
  bool skip_op(std::string_view op) {
    const bool match = current().is_op(op);
    if (match) next();
    return match;
  }

  const Token& expect(TokenKind kind, std::string_view what) {
    if (current().kind != kind) fail_expected(what);
    return next();
  }
  void expect_op(std::string_view op) {
    if (!current().is_op(op)) fail_expected(op);
    next();
  }
  void expect_name(std::string_view name) {
    if (!current().is_name(name)) fail_expected(name);
    next();
  }
  [[noreturn]] void fail_expected(std::string_view what) const {
    fail_syntax(line(), "expected '{}', got '{}'", what, describe(current()));
  }

 private:
  std::vector<Token> tokens_;
  size_t at_ = 0;
};

}  // namespace braid::jinja
