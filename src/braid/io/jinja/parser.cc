#include "braid/io/jinja/parser.h"

#include <algorithm>
#include <initializer_list>

#include "braid/io/jinja/expression_parser.h"
#include "braid/io/jinja/token_stream.h"

namespace braid::jinja {
namespace {

using Ends = std::initializer_list<std::string_view>;

class Parser {
 public:
  explicit Parser(std::string_view source)
      : stream_(tokenize(source)), expressions_(stream_, ast_.literals) {}

  Ast run() {
    ast_.body = statements({});
    return std::move(ast_);
  }

 private:
  // Statements up to an end tag, whose name is then the current token. At the top, `ends` is empty
  // and the template's end ends the statements.
  Body statements(Ends ends) {
    const ExpressionParser::Nest nest(expressions_);
    Body body;
    for (;;) {
      const Token& token = stream_.current();
      switch (token.kind) {
        case TokenKind::data:
          body.push_back({token.line, Data{token.text}});
          stream_.next();
          break;
        case TokenKind::variable_begin:
          stream_.next();
          body.push_back({token.line, Print{expressions_.tuple()}});
          stream_.expect(TokenKind::variable_end, "}}");
          break;
        case TokenKind::block_begin:
          stream_.next();
          if (at_end(ends)) return body;
          body.push_back(statement());
          stream_.expect(TokenKind::block_end, "%}");
          break;
        default:
          if (ends.size() == 0) return body;
          fail_syntax(token.line, "unexpected end of template, expected '{}'",
                      fmt::join(ends, "' or '"));
      }
    }
  }

  bool at_end(Ends ends) const {
    return std::any_of(ends.begin(), ends.end(),
                       [&](std::string_view end) { return stream_.current().is_name(end); });
  }

  // The statements of a tag already read up to %}.
  Body block(Ends ends) {
    stream_.skip_op(":");
    stream_.expect(TokenKind::block_end, "%}");
    return statements(ends);
  }

  Body block_to(std::string_view end) {
    Body body = block({end});
    stream_.next();
    return body;
  }

  Stmt statement() {
    const Token& token = stream_.expect(TokenKind::name, "tag name");
    return {token.line, node(token)};
  }

  Stmt::Node node(const Token& tag) {
    const std::string_view name = tag.text;
    if (name == "if") return if_tag();
    if (name == "for") return for_tag();
    if (name == "set") return set_tag();
    if (name == "macro") return macro_tag();
    if (name == "call") return call_tag(tag.line);
    if (name == "filter") return filter_tag();
    if (name == "generation") return generation_tag();
    if (name == "with") return with_tag();
    if (name == "print") return print_tag();
    if (name == "break" || name == "continue") {
      if (loops_ == 0) fail_syntax(tag.line, "'{}' outside of a loop", name);
      return name == "break" ? Stmt::Node(Break{}) : Stmt::Node(Continue{});
    }
    for (std::string_view refused :
         {"extends", "include", "import", "from", "block", "autoescape"}) {
      if (name != refused) continue;
      fail(ErrorCode::kUnsupported, "chat template line {}: the tag '{}' is not supported",
           tag.line, name);
    }
    fail_syntax(tag.line, "unknown tag '{}'", name);
  }

  Stmt::Node if_tag() {
    If result;
    for (;;) {
      ExprPtr test = expressions_.tuple(false);
      result.branches.emplace_back(std::move(test), block({"elif", "else", "endif"}));
      const Token& end = stream_.next();
      if (end.text == "elif") continue;
      if (end.text == "else") result.otherwise = block_to("endif");
      return result;
    }
  }

  Stmt::Node for_tag() {
    For result;
    result.target = expressions_.target("in");
    check_loop_target(result.target);
    stream_.expect_name("in");
    result.iterable = expressions_.tuple(false, "recursive");
    if (stream_.skip_name("if")) result.test = expressions_.expression();
    result.recursive = stream_.skip_name("recursive");
    ++loops_;
    result.body = block({"endfor", "else"});
    --loops_;
    if (stream_.next().text == "else") result.otherwise = block_to("endfor");
    return result;
  }

  void check_loop_target(const Target& target) {
    if (target.name == "loop") {
      fail_syntax(stream_.line(), "can't assign to special loop variable in for-loop target");
    }
    for (const Target& item : target.items) check_loop_target(item);
  }

  Stmt::Node set_tag() {
    Target target = expressions_.target({}, true);
    if (stream_.skip_op("=")) return Set{std::move(target), expressions_.tuple()};
    ExprPtr filter = expressions_.filters(nullptr);
    return SetBlock{std::move(target), std::move(filter), block_to("endset")};
  }

  Signature signature() {
    Signature result;
    stream_.expect_op("(");
    while (!stream_.current().is_op(")")) {
      if (!result.parameters.empty()) stream_.expect_op(",");
      std::string name = expressions_.target_name();
      if (std::find(result.parameters.begin(), result.parameters.end(), name) !=
          result.parameters.end()) {
        fail_syntax(stream_.line(), "duplicate parameter '{}'", name);
      }
      result.parameters.push_back(std::move(name));
      if (stream_.skip_op("=")) {
        result.defaults.push_back(expressions_.expression());
      } else if (!result.defaults.empty()) {
        fail_syntax(stream_.line(), "non-default argument follows default argument");
      }
    }
    stream_.expect_op(")");
    return result;
  }

  // A macro's body: a separate function, which break cannot leave.
  void function_body(MacroDef& macro, std::string_view end) {
    const int loops = std::exchange(loops_, 0);
    const auto outer = std::exchange(expressions_.specials, {});
    macro.body = block_to(end);
    auto& inner = expressions_.specials;
    macro.uses_caller = inner.caller;
    macro.uses_kwargs = inner.kwargs;
    macro.uses_varargs = inner.varargs;
    inner = {inner.caller || outer.caller, inner.kwargs || outer.kwargs,
             inner.varargs || outer.varargs};
    loops_ = loops;
  }

  Stmt::Node macro_tag() {
    auto macro = std::make_unique<MacroDef>();
    macro->name = expressions_.target_name();
    macro->signature = signature();
    function_body(*macro, "endmacro");
    return std::unique_ptr<const MacroDef>(std::move(macro));
  }

  Stmt::Node call_tag(int line) {
    auto caller = std::make_unique<MacroDef>();
    if (stream_.current().is_op("(")) caller->signature = signature();
    ExprPtr call = expressions_.expression();
    if (!std::holds_alternative<Call>(call->node)) fail_syntax(line, "expected call");
    function_body(*caller, "endcall");
    return CallBlock{std::move(caller), std::move(call)};
  }

  Stmt::Node filter_tag() {
    ExprPtr filter = expressions_.filters(nullptr, true);
    return FilterBlock{std::move(filter), block_to("endfilter")};
  }

  Stmt::Node generation_tag() {
    MacroDef body;
    function_body(body, "endgeneration");
    return Generation{std::move(body.body)};
  }

  Stmt::Node with_tag() {
    With result;
    while (stream_.current().kind != TokenKind::block_end) {
      if (!result.bindings.empty()) stream_.expect_op(",");
      Target target = expressions_.target();
      stream_.expect_op("=");
      result.bindings.emplace_back(std::move(target), expressions_.expression());
    }
    result.body = block_to("endwith");
    return result;
  }

  Stmt::Node print_tag() { return Print{expressions_.printed_list()}; }

  TokenStream stream_;
  Ast ast_;
  ExpressionParser expressions_;
  int loops_ = 0;
};

}  // namespace

Ast parse(std::string_view source) {
  return Parser(source).run();
}

}  // namespace braid::jinja
