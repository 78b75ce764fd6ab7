#pragma once

#include <memory>
#include <string>
#include <vector>

#include "braid/io/jinja/ast.h"
#include "braid/io/jinja/token_stream.h"

namespace braid::jinja {

// Reads expressions and assignment targets, with Jinja's precedences:
// if-else, or, and, not, comparisons and in, + -, ~, * / // %, **, unary, postfix, filters and is.
class ExpressionParser {
 public:
  ExpressionParser(TokenStream& stream, std::vector<std::unique_ptr<Object>>& literals)
      : stream_(stream), literals_(literals) {}

  ExprPtr expression(bool with_condition = true);
  // A tuple, or a plain expression where no comma follows; ends at }}, %}, ) or the name `end`.
  ExprPtr tuple(bool with_condition = true, std::string_view end = {}, bool parentheses = false);
  ExprPtr printed_list();  // expressions between commas up to %}, as one text
  ExprPtr filters(ExprPtr input, bool inline_first = false);  // null input: of a block
  // `namespaces` allows name.attribute.
  Target target(std::string_view end = {}, bool namespaces = false);
  std::string target_name();
  CallArgs call_args();

  // Which names among caller, kwargs and varargs were read since the last reset.
  struct Specials {
    bool caller = false, kwargs = false, varargs = false;
  };
  Specials specials;

  // A level of recursion in the source.
  class Nest {
   public:
    explicit Nest(ExpressionParser& parser);
    ~Nest() { --parser_.nesting_; }
    Nest(const Nest&) = delete;
    Nest& operator=(const Nest&) = delete;

   private:
    ExpressionParser& parser_;
  };

 private:
  ExprPtr condition();
  ExprPtr or_expr();
  ExprPtr and_expr();
  ExprPtr not_expr();
  ExprPtr comparison();
  bool comparison_operator(Comparison* op);
  ExprPtr sum();
  ExprPtr concat();
  ExprPtr product();
  ExprPtr power();
  ExprPtr unary(bool with_filter = true);
  ExprPtr primary();
  ExprPtr name_or_constant();
  ExprPtr string();
  ExprPtr list();
  ExprPtr dict();
  ExprPtr postfix(ExprPtr node);
  ExprPtr filters_and_tests(ExprPtr node);
  ExprPtr attribute(ExprPtr node);
  ExprPtr subscript(ExprPtr node);
  ExprPtr slice(ExprPtr object, ExprPtr start, int line);
  ExprPtr test(ExprPtr node);
  bool test_argument_follows() const;
  std::string dotted_name();
  void call_arg(CallArgs& args, int line);
  Target target_item(bool namespaces);
  bool tuple_end(std::string_view end) const;

  Value literal(std::string text);
  ExprPtr make(int line, Expr::Node node);

  TokenStream& stream_;
  std::vector<std::unique_ptr<Object>>& literals_;
  int nesting_ = 0;
};

}  // namespace braid::jinja
