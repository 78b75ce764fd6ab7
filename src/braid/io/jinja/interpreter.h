#pragma once

#include <string_view>

#include "braid/io/jinja/ast.h"
#include "braid/io/jinja/runtime.h"
#include "braid/io/jinja/scope.h"

namespace braid::jinja {

// Runs a template: statements write to a Text, expressions give values. Scopes follow Jinja: loops,
// macros and set, call, filter, with and generation blocks have one of their own; if does not.
class Interpreter {
 public:
  explicit Interpreter(Runtime& runtime) : rt_(runtime) {}

  enum class Flow { next, break_loop, continue_loop };
  Flow run(const Body& body, Scope& scope, Text& out);
  Value eval(const Expr& expr, const Scope& scope);

  void assign(const Target& target, const Value& value, Scope& scope);
  Runtime& runtime() { return rt_; }
  Scope& new_scope(const Scope& parent) { return *rt_.make<Scope>(&parent); }

  // The loop over `iterable`; `depth` counts the levels in a recursive loop.
  Flow run_for(const For& loop, const Value& iterable, const Scope& scope, Text& out,
               int64_t depth);

 private:
  Flow exec(const Data& data, int line, Scope& scope, Text& out);
  Flow exec(const Print& print, int line, Scope& scope, Text& out);
  Flow exec(const If& branch, int line, Scope& scope, Text& out);
  Flow exec(const For& loop, int line, Scope& scope, Text& out);
  Flow exec(const Set& set, int line, Scope& scope, Text& out);
  Flow exec(const SetBlock& block, int line, Scope& scope, Text& out);
  Flow exec(const std::unique_ptr<const MacroDef>& macro, int line, Scope& scope, Text& out);
  Flow exec(const CallBlock& block, int line, Scope& scope, Text& out);
  Flow exec(const FilterBlock& block, int line, Scope& scope, Text& out);
  Flow exec(const Generation& block, int line, Scope& scope, Text& out);
  Flow exec(const With& with, int line, Scope& scope, Text& out);
  Flow exec(const Break& tag, int line, Scope& scope, Text& out);
  Flow exec(const Continue& tag, int line, Scope& scope, Text& out);

  Value eval(const Const& node, int line, const Scope& scope);
  Value eval(const Name& node, int line, const Scope& scope);
  Value eval(const ListExpr& node, int line, const Scope& scope);
  Value eval(const DictExpr& node, int line, const Scope& scope);
  Value eval(const GetAttr& node, int line, const Scope& scope);
  Value eval(const GetItem& node, int line, const Scope& scope);
  Value eval(const GetSlice& node, int line, const Scope& scope);
  Value eval(const Call& node, int line, const Scope& scope);
  Value eval(const FilterExpr& node, int line, const Scope& scope);
  Value eval(const TestExpr& node, int line, const Scope& scope);
  Value eval(const Unary& node, int line, const Scope& scope);
  Value eval(const Binary& node, int line, const Scope& scope);
  Value eval(const Logic& node, int line, const Scope& scope);
  Value eval(const Compare& node, int line, const Scope& scope);
  Value eval(const Concat& node, int line, const Scope& scope);
  Value eval(const Conditional& node, int line, const Scope& scope);

  void append_text(const Value& value, Text& out);
  Value call(const Call& node, int line, const Scope& scope, const Value* caller);
  Args eval_args(const CallArgs& args, const Scope& scope);
  Value eval_optional(const ExprPtr& expr, const Scope& scope);
  // Applies the filters of a filter or set block, innermost first, to the block's text.
  Value filter_block(const Expr& filter, const Value& text, const Scope& scope);

  Runtime& rt_;
};

}  // namespace braid::jinja
