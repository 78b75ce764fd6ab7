#include "braid/io/jinja/filters.h"
#include "braid/io/jinja/interpreter.h"
#include "braid/io/jinja/iterate.h"
#include "braid/io/jinja/loop.h"
#include "braid/io/jinja/macro.h"
#include "braid/io/jinja/namespace.h"
#include "braid/io/jinja/operators.h"
#include "braid/io/jinja/text.h"

// The statements.
namespace braid::jinja {

using Flow = Interpreter::Flow;

Flow Interpreter::run(const Body& body, Scope& scope, Text& out) {
  const Depth depth(rt_);
  for (const Stmt& stmt : body) {
    rt_.step();
    rt_.set_line(stmt.line);
    const Flow flow =
        std::visit([&](const auto& node) { return exec(node, stmt.line, scope, out); }, stmt.node);
    if (flow != Flow::next) return flow;
  }
  return Flow::next;
}

Flow Interpreter::exec(const Data& data, int, Scope&, Text& out) {
  out.append(data.text);
  return Flow::next;
}

Flow Interpreter::exec(const Print& print, int, Scope& scope, Text& out) {
  append_str(rt_, out, eval(*print.value, scope));
  return Flow::next;
}

Flow Interpreter::exec(const If& branch, int, Scope& scope, Text& out) {
  for (const auto& [test, body] : branch.branches) {
    if (truthy(eval(*test, scope))) return run(body, scope, out);
  }
  return run(branch.otherwise, scope, out);
}

Flow Interpreter::exec(const Set& set, int line, Scope& scope, Text&) {
  const Value value = eval(*set.value, scope);
  rt_.set_line(line);
  assign(set.target, value, scope);
  return Flow::next;
}

Flow Interpreter::exec(const SetBlock& block, int line, Scope& scope, Text&) {
  Text text(rt_);
  Scope& inner = new_scope(scope);
  const Flow flow = run(block.body, inner, text);
  if (flow != Flow::next) return flow;
  Value value = text.value();
  if (block.filter) value = filter_block(*block.filter, value, inner);
  rt_.set_line(line);
  assign(block.target, value, scope);
  return Flow::next;
}

Flow Interpreter::exec(const std::unique_ptr<const MacroDef>& macro, int, Scope& scope, Text&) {
  scope.set(rt_, macro->name, Value(rt_.make<Macro>(*this, *macro, scope)));
  return Flow::next;
}

Flow Interpreter::exec(const CallBlock& block, int line, Scope& scope, Text& out) {
  const Value caller(rt_.make<Macro>(*this, *block.caller, scope));
  append_text(call(std::get<Call>(block.call->node), line, scope, &caller), out);
  return Flow::next;
}

Flow Interpreter::exec(const FilterBlock& block, int, Scope& scope, Text& out) {
  Text text(rt_);
  Scope& inner = new_scope(scope);
  const Flow flow = run(block.body, inner, text);
  if (flow != Flow::next) return flow;
  append_text(filter_block(*block.filter, text.value(), inner), out);
  return Flow::next;
}

void Interpreter::append_text(const Value& value, Text& out) {
  if (!value.str()) rt_.fail("the block gives {}, not text", type_name(value));
  out.append(value.str()->text);
}

Flow Interpreter::exec(const Generation& block, int, Scope& scope, Text& out) {
  return run(block.body, new_scope(scope), out);
}

Flow Interpreter::exec(const With& with, int, Scope& scope, Text& out) {
  Scope& inner = new_scope(scope);
  for (const auto& [target, value] : with.bindings) assign(target, eval(*value, scope), inner);
  return run(with.body, inner, out);
}

Flow Interpreter::exec(const Break&, int, Scope&, Text&) {
  return Flow::break_loop;
}

Flow Interpreter::exec(const Continue&, int, Scope&, Text&) {
  return Flow::continue_loop;
}

Flow Interpreter::exec(const For& loop, int, Scope& scope, Text& out) {
  return run_for(loop, eval(*loop.iterable, scope), scope, out, 1);
}

Flow Interpreter::run_for(const For& loop, const Value& iterable, const Scope& scope, Text& out,
                          int64_t depth) {
  Iterator* source = make_iterator(rt_, iterable);
  auto size = length(iterable);
  if (loop.test) {
    size.reset();
    Scope& test_scope = new_scope(scope);
    const auto accept = [this, &loop, &test_scope, source](Runtime& rt, Value& item) {
      while (source->next(rt, item)) {
        test_scope.clear();
        assign(loop.target, item, test_scope);
        if (truthy(eval(*loop.test, test_scope))) return true;
      }
      return false;
    };
    source = make_iterator(rt_, make_generator(rt_, accept));
  }
  Loop::Recurse recurse;
  if (loop.recursive) {
    recurse = [this, &loop, &scope, depth](const Value& items) {
      Text text(rt_);
      run_for(loop, items, scope, text, depth + 1);
      return text.value();
    };
  }
  auto* state = rt_.make<Loop>(source, size, depth, std::move(recurse));
  Scope& inner = new_scope(scope);
  bool completed = false;  // Jinja runs `else` unless the body has once reached its end
  for (Value item; state->advance(rt_, item);) {
    inner.clear();
    inner.set(rt_, "loop", Value(state));
    assign(loop.target, item, inner);
    const Flow flow = run(loop.body, inner, out);
    if (flow == Flow::break_loop) break;
    completed |= flow == Flow::next;
  }
  if (completed) return Flow::next;
  return run(loop.otherwise, new_scope(scope), out);
}

void Interpreter::assign(const Target& target, const Value& value, Scope& scope) {
  if (target.tuple) {
    const auto items = collect(rt_, value);
    if (items.size() != target.items.size()) {
      rt_.fail("cannot unpack {} values into {} names", items.size(), target.items.size());
    }
    for (size_t i = 0; i < items.size(); ++i) assign(target.items[i], items[i], scope);
  } else if (target.attribute.empty()) {
    scope.set(rt_, target.name, value);
  } else {
    const auto holder = scope.find(rt_, target.name);
    auto* space = holder ? dynamic_cast<Namespace*>(holder->instance()) : nullptr;
    if (!space) rt_.fail("cannot assign attribute on non-namespace object");
    space->set(rt_, target.attribute, value);
  }
}

}  // namespace braid::jinja
