#include "braid/io/jinja/expression_parser.h"

#include <algorithm>
#include <optional>

#include "braid/io/jinja/parser.h"

namespace braid::jinja {
namespace {

// The depth of the trees below a node.
struct DepthOf {
  int operator()(const ExprPtr& e) const { return e ? e->depth : 0; }
  int operator()(const std::vector<ExprPtr>& list) const {
    int depth = 0;
    for (const auto& e : list) depth = std::max(depth, (*this)(e));
    return depth;
  }
  int operator()(const CallArgs& args) const {
    int depth = std::max({(*this)(args.positional), (*this)(args.star), (*this)(args.star_star)});
    for (const auto& named : args.named) depth = std::max(depth, (*this)(named.second));
    return depth;
  }
  int operator()(const Const&) const { return 0; }
  int operator()(const Name&) const { return 0; }
  int operator()(const ListExpr& e) const { return (*this)(e.items); }
  int operator()(const DictExpr& e) const {
    int depth = 0;
    for (const auto& [key, value] : e.entries) {
      depth = std::max({depth, (*this)(key), (*this)(value)});
    }
    return depth;
  }
  int operator()(const GetAttr& e) const { return (*this)(e.object); }
  int operator()(const GetItem& e) const { return std::max((*this)(e.object), (*this)(e.key)); }
  int operator()(const GetSlice& e) const {
    return std::max({(*this)(e.object), (*this)(e.start), (*this)(e.stop), (*this)(e.step)});
  }
  int operator()(const Call& e) const { return std::max((*this)(e.callee), (*this)(e.args)); }
  int operator()(const FilterExpr& e) const { return std::max((*this)(e.input), (*this)(e.args)); }
  int operator()(const TestExpr& e) const { return std::max((*this)(e.input), (*this)(e.args)); }
  int operator()(const Unary& e) const { return (*this)(e.operand); }
  int operator()(const Binary& e) const { return std::max((*this)(e.left), (*this)(e.right)); }
  int operator()(const Logic& e) const { return std::max((*this)(e.left), (*this)(e.right)); }
  int operator()(const Compare& e) const {
    int depth = (*this)(e.first);
    for (const auto& item : e.rest) depth = std::max(depth, (*this)(item.second));
    return depth;
  }
  int operator()(const Concat& e) const { return (*this)(e.items); }
  int operator()(const Conditional& e) const {
    return std::max({(*this)(e.test), (*this)(e.then), (*this)(e.otherwise)});
  }
};

[[noreturn]] void fail_nesting(int line) {
  fail(ErrorCode::kUnsupported, "chat template line {}: nested deeper than {} levels", line,
       kMaxNesting);
}

std::optional<Arithmetic> arithmetic_op(const Token& token, std::string_view ops) {
  if (token.kind != TokenKind::op) return std::nullopt;
  if (ops.find(" " + token.text + " ") == std::string_view::npos) return std::nullopt;
  for (auto op : {Arithmetic::add, Arithmetic::sub, Arithmetic::mul, Arithmetic::div,
                  Arithmetic::floor_div, Arithmetic::mod, Arithmetic::pow}) {
    if (symbol(op) == token.text) return op;
  }
  return std::nullopt;
}

bool is_constant_name(std::string_view name) {
  return name == "true" || name == "True" || name == "false" || name == "False" || name == "none" ||
         name == "None";
}

}  // namespace

ExpressionParser::Nest::Nest(ExpressionParser& parser) : parser_(parser) {
  if (++parser_.nesting_ > kMaxNesting) fail_nesting(parser_.stream_.line());
}

ExprPtr ExpressionParser::make(int line, Expr::Node node) {
  const int depth = 1 + std::visit(DepthOf{}, node);
  if (depth > kMaxNesting) fail_nesting(line);
  return std::make_unique<const Expr>(Expr{line, depth, std::move(node)});
}

Value ExpressionParser::literal(std::string text) {
  auto str = std::make_unique<Str>(std::move(text));
  const Value value(str.get());
  literals_.push_back(std::move(str));
  return value;
}

ExprPtr ExpressionParser::expression(bool with_condition) {
  const Nest nest(*this);
  return with_condition ? condition() : or_expr();
}

ExprPtr ExpressionParser::condition() {
  const Nest nest(*this);
  int line = stream_.line();
  ExprPtr then = or_expr();
  while (stream_.skip_name("if")) {
    ExprPtr test = or_expr();
    ExprPtr otherwise = stream_.skip_name("else") ? condition() : nullptr;
    then = make(line, Conditional{std::move(test), std::move(then), std::move(otherwise)});
    line = stream_.line();
  }
  return then;
}

ExprPtr ExpressionParser::or_expr() {
  const int line = stream_.line();
  ExprPtr left = and_expr();
  while (stream_.skip_name("or")) left = make(line, Logic{false, std::move(left), and_expr()});
  return left;
}

ExprPtr ExpressionParser::and_expr() {
  const int line = stream_.line();
  ExprPtr left = not_expr();
  while (stream_.skip_name("and")) left = make(line, Logic{true, std::move(left), not_expr()});
  return left;
}

ExprPtr ExpressionParser::not_expr() {
  const Nest nest(*this);
  const int line = stream_.line();
  if (stream_.skip_name("not")) return make(line, Unary{UnaryOp::not_, not_expr()});
  return comparison();
}

bool ExpressionParser::comparison_operator(Comparison* op) {
  static constexpr std::pair<std::string_view, Comparison> kOps[] = {
      {"==", Comparison::eq}, {"!=", Comparison::ne}, {"<", Comparison::lt},
      {"<=", Comparison::le}, {">", Comparison::gt},  {">=", Comparison::ge}};
  for (const auto& [text, comparison] : kOps) {
    if (!stream_.skip_op(text)) continue;
    *op = comparison;
    return true;
  }
  *op = Comparison::in;
  if (stream_.skip_name("in")) return true;
  *op = Comparison::not_in;
  if (!stream_.current().is_name("not") || !stream_.look().is_name("in")) return false;
  stream_.next();
  stream_.next();
  return true;
}

ExprPtr ExpressionParser::comparison() {
  const int line = stream_.line();
  ExprPtr first = sum();
  std::vector<std::pair<Comparison, ExprPtr>> rest;
  for (Comparison op; comparison_operator(&op);) rest.emplace_back(op, sum());
  if (rest.empty()) return first;
  return make(line, Compare{std::move(first), std::move(rest)});
}

ExprPtr ExpressionParser::sum() {
  const int line = stream_.line();
  ExprPtr left = concat();
  while (const auto op = arithmetic_op(stream_.current(), " + - ")) {
    stream_.next();
    left = make(line, Binary{*op, std::move(left), concat()});
  }
  return left;
}

ExprPtr ExpressionParser::concat() {
  const int line = stream_.line();
  std::vector<ExprPtr> items;
  do {
    items.push_back(product());
  } while (stream_.skip_op("~"));
  if (items.size() == 1) return std::move(items[0]);
  return make(line, Concat{std::move(items)});
}

ExprPtr ExpressionParser::product() {
  const int line = stream_.line();
  ExprPtr left = power();
  while (const auto op = arithmetic_op(stream_.current(), " * / // % ")) {
    stream_.next();
    left = make(line, Binary{*op, std::move(left), power()});
  }
  return left;
}

ExprPtr ExpressionParser::power() {
  const int line = stream_.line();
  ExprPtr left = unary();
  while (stream_.skip_op("**")) {
    left = make(line, Binary{Arithmetic::pow, std::move(left), unary()});
  }
  return left;
}

ExprPtr ExpressionParser::unary(bool with_filter) {
  const Nest nest(*this);
  const int line = stream_.line();
  ExprPtr node;
  if (stream_.skip_op("-")) {
    node = make(line, Unary{UnaryOp::negate, unary(false)});
  } else if (stream_.skip_op("+")) {
    node = make(line, Unary{UnaryOp::plus, unary(false)});
  } else {
    node = primary();
  }
  node = postfix(std::move(node));
  return with_filter ? filters_and_tests(std::move(node)) : std::move(node);
}

ExprPtr ExpressionParser::primary() {
  const Token& token = stream_.current();
  switch (token.kind) {
    case TokenKind::name:
      return name_or_constant();
    case TokenKind::string:
      return string();
    case TokenKind::integer:
      stream_.next();
      return make(token.line, Const{token.integer});
    case TokenKind::floating:
      stream_.next();
      return make(token.line, Const{token.number});
    default:
      break;
  }
  if (stream_.skip_op("(")) {
    ExprPtr node = tuple(true, {}, true);
    stream_.expect_op(")");
    return node;
  }
  if (token.is_op("[")) return list();
  if (token.is_op("{")) return dict();
  fail_syntax(token.line, "unexpected '{}'", describe(token));
}

ExprPtr ExpressionParser::name_or_constant() {
  const Token& token = stream_.next();
  const std::string& name = token.text;
  if (is_constant_name(name)) {
    if (name == "none" || name == "None") return make(token.line, Const{None{}});
    return make(token.line, Const{name == "true" || name == "True"});
  }
  specials.caller |= name == "caller";
  specials.kwargs |= name == "kwargs";
  specials.varargs |= name == "varargs";
  return make(token.line, Name{name});
}

ExprPtr ExpressionParser::string() {
  const int line = stream_.line();
  std::string text;
  while (stream_.current().kind == TokenKind::string) text += stream_.next().text;
  return make(line, Const{literal(std::move(text))});
}

ExprPtr ExpressionParser::list() {
  const int line = stream_.line();
  stream_.expect_op("[");
  std::vector<ExprPtr> items;
  while (!stream_.current().is_op("]")) {
    if (!items.empty()) stream_.expect_op(",");
    if (stream_.current().is_op("]")) break;
    items.push_back(expression());
  }
  stream_.expect_op("]");
  return make(line, ListExpr{std::move(items), false});
}

ExprPtr ExpressionParser::dict() {
  const int line = stream_.line();
  stream_.expect_op("{");
  std::vector<std::pair<ExprPtr, ExprPtr>> entries;
  while (!stream_.current().is_op("}")) {
    if (!entries.empty()) stream_.expect_op(",");
    if (stream_.current().is_op("}")) break;
    ExprPtr key = expression();
    stream_.expect_op(":");
    entries.emplace_back(std::move(key), expression());
  }
  stream_.expect_op("}");
  return make(line, DictExpr{std::move(entries)});
}

ExprPtr ExpressionParser::printed_list() {
  const int line = stream_.line();
  std::vector<ExprPtr> items;
  while (stream_.current().kind != TokenKind::block_end) {
    if (!items.empty()) stream_.expect_op(",");
    items.push_back(expression());
  }
  return make(line, Concat{std::move(items)});
}

bool ExpressionParser::tuple_end(std::string_view end) const {
  const Token& token = stream_.current();
  return token.kind == TokenKind::variable_end || token.kind == TokenKind::block_end ||
         token.is_op(")") || (!end.empty() && token.is_name(end));
}

ExprPtr ExpressionParser::tuple(bool with_condition, std::string_view end, bool parentheses) {
  const int line = stream_.line();
  std::vector<ExprPtr> items;
  bool comma = false;
  while (!tuple_end(end)) {
    items.push_back(expression(with_condition));
    if (!stream_.current().is_op(",")) break;
    comma = true;
    stream_.next();
  }
  if (comma) return make(line, ListExpr{std::move(items), true});
  if (!items.empty()) return std::move(items[0]);
  if (parentheses) return make(line, ListExpr{{}, true});
  fail_syntax(line, "expected an expression, got '{}'", describe(stream_.current()));
}

}  // namespace braid::jinja
