#include "braid/io/jinja/access.h"
#include "braid/io/jinja/filters.h"
#include "braid/io/jinja/interpreter.h"
#include "braid/io/jinja/iterate.h"
#include "braid/io/jinja/operators.h"
#include "braid/io/jinja/tests.h"
#include "braid/io/jinja/text.h"

// The expressions.
namespace braid::jinja {

Value Interpreter::eval(const Expr& expr, const Scope& scope) {
  const Depth depth(rt_);
  rt_.step();
  rt_.set_line(expr.line);
  return std::visit([&](const auto& node) { return eval(node, expr.line, scope); }, expr.node);
}

Value Interpreter::eval_optional(const ExprPtr& expr, const Scope& scope) {
  return expr ? eval(*expr, scope) : Value();
}

Value Interpreter::eval(const Const& node, int, const Scope&) {
  return node.value;
}

Value Interpreter::eval(const Name& node, int, const Scope& scope) {
  if (auto value = scope.find(rt_, node.id)) return *value;
  return rt_.undefined(fmt::format("'{}' is undefined", node.id));
}

Value Interpreter::eval(const ListExpr& node, int, const Scope& scope) {
  Items items(rt_);
  for (const auto& item : node.items) items.add(eval(*item, scope));
  return node.tuple ? items.tuple() : items.list();
}

Value Interpreter::eval(const DictExpr& node, int, const Scope& scope) {
  auto* dict = rt_.make<Dict>();
  for (const auto& [key, value] : node.entries) {
    const Value k = eval(*key, scope);
    insert(rt_, *dict, k, eval(*value, scope));
  }
  return dict;
}

Value Interpreter::eval(const GetAttr& node, int line, const Scope& scope) {
  const Value object = eval(*node.object, scope);
  rt_.set_line(line);
  return get_attribute(rt_, object, node.name);
}

Value Interpreter::eval(const GetItem& node, int line, const Scope& scope) {
  const Value object = eval(*node.object, scope);
  const Value key = eval(*node.key, scope);
  rt_.set_line(line);
  return get_item(rt_, object, key);
}

Value Interpreter::eval(const GetSlice& node, int line, const Scope& scope) {
  const Value object = eval(*node.object, scope);
  const Value start = eval_optional(node.start, scope);
  const Value stop = eval_optional(node.stop, scope);
  const Value step = eval_optional(node.step, scope);
  rt_.set_line(line);
  return get_slice(rt_, object, start, stop, step);
}

Value Interpreter::eval(const Call& node, int line, const Scope& scope) {
  return call(node, line, scope, nullptr);
}

Value Interpreter::call(const Call& node, int line, const Scope& scope, const Value* caller) {
  const Value callee = eval(*node.callee, scope);
  Args args = eval_args(node.args, scope);
  if (caller) args.named.emplace_back("caller", *caller);
  rt_.set_line(line);
  if (callee.undefined()) rt_.fail_undefined(callee);
  if (!callee.instance()) rt_.fail("'{}' object is not callable", type_name(callee));
  const Value result = callee.instance()->call(rt_, args);
  rt_.set_line(line);
  return result;
}

Args Interpreter::eval_args(const CallArgs& args, const Scope& scope) {
  Args result;
  for (const auto& arg : args.positional) result.positional.push_back(eval(*arg, scope));
  for (const auto& [name, arg] : args.named) result.named.emplace_back(name, eval(*arg, scope));
  if (args.star) {
    for (const Value& item : collect(rt_, eval(*args.star, scope))) {
      result.positional.push_back(item);
    }
  }
  if (!args.star_star) return result;
  const Value more = eval(*args.star_star, scope);
  if (more.undefined()) rt_.fail_undefined(more);
  if (!more.dict()) rt_.fail("argument after ** must be a mapping, not {}", type_name(more));
  for (const auto& [key, value] : more.dict()->entries) {
    if (!key.str()) rt_.fail("keywords must be strings");
    for (const auto& named : result.named) {
      if (named.first == key.str()->text) {
        rt_.fail("got multiple values for keyword argument '{}'", named.first);
      }
    }
    result.named.emplace_back(key.str()->text, value);
  }
  return result;
}

Value Interpreter::eval(const FilterExpr& node, int line, const Scope& scope) {
  const Value input = eval(*node.input, scope);
  const Args args = eval_args(node.args, scope);
  rt_.set_line(line);
  return apply_filter(rt_, node.name, input, args);
}

Value Interpreter::filter_block(const Expr& filter, const Value& text, const Scope& scope) {
  const auto& node = std::get<FilterExpr>(filter.node);
  const Value input = node.input ? filter_block(*node.input, text, scope) : text;
  const Args args = eval_args(node.args, scope);
  rt_.set_line(filter.line);
  return apply_filter(rt_, node.name, input, args);
}

Value Interpreter::eval(const TestExpr& node, int line, const Scope& scope) {
  const Value input = eval(*node.input, scope);
  const Args args = eval_args(node.args, scope);
  rt_.set_line(line);
  return apply_test(rt_, node.name, input, args);
}

Value Interpreter::eval(const Unary& node, int line, const Scope& scope) {
  const Value operand = eval(*node.operand, scope);
  rt_.set_line(line);
  if (node.op == UnaryOp::not_) return !truthy(operand);
  return node.op == UnaryOp::negate ? negate(rt_, operand) : plus(rt_, operand);
}

Value Interpreter::eval(const Binary& node, int line, const Scope& scope) {
  const Value left = eval(*node.left, scope);
  const Value right = eval(*node.right, scope);
  rt_.set_line(line);
  return binary(rt_, node.op, left, right);
}

Value Interpreter::eval(const Logic& node, int, const Scope& scope) {
  const Value left = eval(*node.left, scope);
  return truthy(left) == node.is_and ? eval(*node.right, scope) : left;
}

Value Interpreter::eval(const Compare& node, int line, const Scope& scope) {
  Value left = eval(*node.first, scope);
  for (const auto& [op, expr] : node.rest) {
    const Value right = eval(*expr, scope);
    rt_.set_line(line);
    if (!compare(rt_, op, left, right)) return false;
    left = right;
  }
  return true;
}

Value Interpreter::eval(const Concat& node, int, const Scope& scope) {
  Text out(rt_);
  for (const auto& item : node.items) append_str(rt_, out, eval(*item, scope));
  return out.value();
}

Value Interpreter::eval(const Conditional& node, int line, const Scope& scope) {
  if (truthy(eval(*node.test, scope))) return eval(*node.then, scope);
  if (node.otherwise) return eval(*node.otherwise, scope);
  return rt_.undefined(fmt::format(
      "the inline if-expression on line {} evaluated to false and no else section was defined.",
      line));
}

}  // namespace braid::jinja
