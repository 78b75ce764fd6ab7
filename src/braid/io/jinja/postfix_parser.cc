#include "braid/io/jinja/expression_parser.h"

// The tail of a primary expression: attributes, subscripts, calls, filters and tests; and targets.
namespace braid::jinja {

ExprPtr ExpressionParser::postfix(ExprPtr node) {
  for (;;) {
    const int line = stream_.line();
    if (stream_.skip_op(".")) {
      node = attribute(std::move(node));
    } else if (stream_.skip_op("[")) {
      node = subscript(std::move(node));
    } else if (stream_.current().is_op("(")) {
      CallArgs args = call_args();
      node = make(line, Call{std::move(node), std::move(args)});
    } else {
      return node;
    }
  }
}

ExprPtr ExpressionParser::filters_and_tests(ExprPtr node) {
  for (;;) {
    const int line = stream_.line();
    if (stream_.current().is_op("|")) {
      node = filters(std::move(node));
    } else if (stream_.skip_name("is")) {
      node = test(std::move(node));
    } else if (stream_.current().is_op("(")) {
      CallArgs args = call_args();
      node = make(line, Call{std::move(node), std::move(args)});
    } else {
      return node;
    }
  }
}

ExprPtr ExpressionParser::attribute(ExprPtr node) {
  const Token& token = stream_.next();
  if (token.kind == TokenKind::name) {
    return make(token.line, GetAttr{std::move(node), literal(token.text)});
  }
  if (token.kind != TokenKind::integer) fail_syntax(token.line, "expected name or number");
  return make(token.line, GetItem{std::move(node), make(token.line, Const{token.integer})});
}

ExprPtr ExpressionParser::subscript(ExprPtr node) {
  const int line = stream_.line();
  std::vector<ExprPtr> keys;
  while (!stream_.current().is_op("]")) {
    if (!keys.empty()) stream_.expect_op(",");
    ExprPtr key = stream_.current().is_op(":") ? nullptr : expression();
    if (stream_.current().is_op(":")) {
      if (!keys.empty()) fail_syntax(line, "a slice among several subscripts is not supported");
      return slice(std::move(node), std::move(key), line);
    }
    keys.push_back(std::move(key));
  }
  stream_.expect_op("]");
  ExprPtr key = keys.size() == 1 ? std::move(keys[0]) : make(line, ListExpr{std::move(keys), true});
  return make(line, GetItem{std::move(node), std::move(key)});
}

// Behind the start of a slice; reads the closing bracket too.
ExprPtr ExpressionParser::slice(ExprPtr object, ExprPtr start, int line) {
  const auto part = [&]() -> ExprPtr {
    if (!stream_.skip_op(":")) return nullptr;
    const Token& token = stream_.current();
    return token.is_op(":") || token.is_op("]") ? nullptr : expression();
  };
  ExprPtr stop = part();
  ExprPtr step = part();
  stream_.expect_op("]");
  return make(line,
              GetSlice{std::move(object), std::move(start), std::move(stop), std::move(step)});
}

CallArgs ExpressionParser::call_args() {
  const Nest nest(*this);
  const int line = stream_.line();
  stream_.expect_op("(");
  CallArgs args;
  bool comma = false;
  while (!stream_.current().is_op(")")) {
    if (comma) {
      stream_.expect_op(",");
      if (stream_.current().is_op(")")) break;
    }
    call_arg(args, line);
    comma = true;
  }
  stream_.expect_op(")");
  return args;
}

void ExpressionParser::call_arg(CallArgs& args, int line) {
  const auto ensure = [&](bool holds) {
    if (!holds) fail_syntax(line, "invalid syntax for function call expression");
  };
  if (stream_.skip_op("*")) {
    ensure(!args.star && !args.star_star);
    args.star = expression();
  } else if (stream_.skip_op("**")) {
    ensure(!args.star_star);
    args.star_star = expression();
  } else if (stream_.current().kind == TokenKind::name && stream_.look().is_op("=")) {
    ensure(!args.star_star);
    std::string name = stream_.next().text;
    stream_.next();
    for (const auto& other : args.named) ensure(other.first != name);
    args.named.emplace_back(std::move(name), expression());
  } else {
    ensure(!args.star && !args.star_star && args.named.empty());
    args.positional.push_back(expression());
  }
}

std::string ExpressionParser::dotted_name() {
  std::string name = stream_.expect(TokenKind::name, "name").text;
  while (stream_.skip_op(".")) name += "." + stream_.expect(TokenKind::name, "name").text;
  return name;
}

ExprPtr ExpressionParser::filters(ExprPtr input, bool inline_first) {
  while (inline_first || stream_.skip_op("|")) {
    inline_first = false;
    const int line = stream_.line();
    std::string name = dotted_name();
    CallArgs args;
    if (stream_.current().is_op("(")) args = call_args();
    input = make(line, FilterExpr{std::move(input), std::move(name), std::move(args)});
  }
  return input;
}

bool ExpressionParser::test_argument_follows() const {
  const Token& token = stream_.current();
  switch (token.kind) {
    case TokenKind::name:
      return token.text != "else" && token.text != "or" && token.text != "and";
    case TokenKind::string:
    case TokenKind::integer:
    case TokenKind::floating:
      return true;
    default:
      return token.is_op("[") || token.is_op("{");
  }
}

ExprPtr ExpressionParser::test(ExprPtr node) {
  const int line = stream_.line();
  const bool negated = stream_.skip_name("not");
  std::string name = dotted_name();
  CallArgs args;
  if (stream_.current().is_op("(")) {
    args = call_args();
  } else if (test_argument_follows()) {
    if (stream_.current().is_name("is")) fail_syntax(line, "tests cannot be chained with 'is'");
    args.positional.push_back(postfix(primary()));
  }
  node = make(line, TestExpr{std::move(node), std::move(name), std::move(args)});
  return negated ? make(line, Unary{UnaryOp::not_, std::move(node)}) : std::move(node);
}

std::string ExpressionParser::target_name() {
  const Token& token = stream_.expect(TokenKind::name, "name");
  static constexpr std::string_view kConstants[] = {"true",  "True", "false",
                                                    "False", "none", "None"};
  for (const std::string_view constant : kConstants) {
    if (token.text == constant) fail_syntax(token.line, "can't assign to '{}'", token.text);
  }
  return token.text;
}

Target ExpressionParser::target_item(bool namespaces) {
  const Nest nest(*this);
  if (stream_.skip_op("(")) {
    Target inner = target({}, namespaces);
    stream_.expect_op(")");
    return inner;
  }
  Target item;
  item.name = target_name();
  if (namespaces && stream_.skip_op(".")) {
    item.attribute = stream_.expect(TokenKind::name, "name").text;
  }
  return item;
}

Target ExpressionParser::target(std::string_view end, bool namespaces) {
  Target result;
  const int line = stream_.line();
  while (!tuple_end(end)) {
    result.items.push_back(target_item(namespaces));
    if (!stream_.skip_op(",")) break;
    result.tuple = true;
  }
  if (result.tuple) return result;
  if (result.items.empty()) {
    fail_syntax(line, "expected a name to assign to, got '{}'", describe(stream_.current()));
  }
  Target only = std::move(result.items[0]);
  return only;
}

}  // namespace braid::jinja
