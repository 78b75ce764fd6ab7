#pragma once

#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "braid/io/jinja/number.h"
#include "braid/io/jinja/operators.h"
#include "braid/io/jinja/value.h"

// The parser's result for a template. Names follow Jinja's documentation.
namespace braid::jinja {

struct Expr;
using ExprPtr = std::unique_ptr<const Expr>;

struct CallArgs {
  std::vector<ExprPtr> positional;
  std::vector<std::pair<std::string, ExprPtr>> named;
  ExprPtr star;       // *args
  ExprPtr star_star;  // **kwargs
};

struct Const {
  Value value;  // owned by the Ast when it is a string
};
struct Name {
  std::string id;
};
struct ListExpr {
  std::vector<ExprPtr> items;
  bool tuple;
};
struct DictExpr {
  std::vector<std::pair<ExprPtr, ExprPtr>> entries;
};
struct GetAttr {
  ExprPtr object;
  Value name;
};
struct GetItem {
  ExprPtr object, key;
};
struct GetSlice {
  ExprPtr object, start, stop, step;  // the last three may be null
};
struct Call {
  ExprPtr callee;
  CallArgs args;
};
struct FilterExpr {
  ExprPtr input;  // null: the text of the enclosing filter or set block
  std::string name;
  CallArgs args;
};
struct TestExpr {
  ExprPtr input;
  std::string name;
  CallArgs args;
};
enum class UnaryOp { negate, plus, not_ };
struct Unary {
  UnaryOp op;
  ExprPtr operand;
};
struct Binary {
  Arithmetic op;
  ExprPtr left, right;
};
struct Logic {
  bool is_and;
  ExprPtr left, right;
};
struct Compare {
  ExprPtr first;
  std::vector<std::pair<Comparison, ExprPtr>> rest;
};
struct Concat {
  std::vector<ExprPtr> items;
};
struct Conditional {
  ExprPtr test, then, otherwise;  // `otherwise` may be null
};

struct Expr {
  using Node =
      std::variant<Const, Name, ListExpr, DictExpr, GetAttr, GetItem, GetSlice, Call, FilterExpr,
                   TestExpr, Unary, Binary, Logic, Compare, Concat, Conditional>;
  int line;
  int depth;  // of the tree below, bounded by the parser
  Node node;
};

// A target of an assignment: a name, namespace.attribute, or a tuple of targets.
struct Target {
  std::string name;
  std::string attribute;  // empty: the name itself
  std::vector<Target> items;
  bool tuple = false;
};

struct Stmt;
using Body = std::vector<Stmt>;

struct Data {
  std::string text;
};
struct Print {
  ExprPtr value;
};
struct If {
  std::vector<std::pair<ExprPtr, Body>> branches;
  Body otherwise;
};
struct For {
  Target target;
  ExprPtr iterable;
  ExprPtr test;  // may be null
  Body body, otherwise;
  bool recursive = false;
};
struct Set {
  Target target;
  ExprPtr value;
};
struct SetBlock {
  Target target;
  ExprPtr filter;  // may be null
  Body body;
};
struct Signature {
  std::vector<std::string> parameters;
  std::vector<ExprPtr> defaults;  // of the last ones
};
struct MacroDef {
  std::string name;  // empty: the body of a call block
  Signature signature;
  Body body;
  bool uses_caller = false, uses_kwargs = false, uses_varargs = false;
};
struct CallBlock {
  std::unique_ptr<const MacroDef> caller;
  ExprPtr call;  // a Call
};
struct FilterBlock {
  ExprPtr filter;
  Body body;
};
struct Generation {  // {% generation %}: marks the assistant's text
  Body body;
};
struct With {
  std::vector<std::pair<Target, ExprPtr>> bindings;
  Body body;
};
struct Break {};
struct Continue {};

struct Stmt {
  using Node = std::variant<Data, Print, If, For, Set, SetBlock, std::unique_ptr<const MacroDef>,
                            CallBlock, FilterBlock, Generation, With, Break, Continue>;
  int line;
  Node node;
};

struct Ast {
  Body body;
  std::vector<std::unique_ptr<Object>> literals;
};

}  // namespace braid::jinja
