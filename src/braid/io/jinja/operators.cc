#include "braid/io/jinja/operators.h"

#include <algorithm>
#include <cmath>

#include "braid/io/jinja/format.h"
#include "braid/io/jinja/iterate.h"
#include "braid/io/jinja/text.h"

namespace braid::jinja {
namespace {

// -1, 0 or 1; 2 where a NaN is involved. Exact for integers against floats.
int compare_numbers(const Value& a, const Value& b) {
  int64_t i = 0;
  int64_t j = 0;
  const long double x = is_integer(a, &i) ? static_cast<long double>(i) : a.get<double>();
  const long double y = is_integer(b, &j) ? static_cast<long double>(j) : b.get<double>();
  if (std::isnan(x) || std::isnan(y)) return 2;
  return x < y ? -1 : x > y ? 1 : 0;
}

bool equal_items(Runtime& runtime, const std::vector<Value>& a, const std::vector<Value>& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (!a[i].same(b[i]) && !equal(runtime, a[i], b[i])) return false;
  }
  return true;
}

bool equal_dicts(Runtime& runtime, const Dict& a, const Dict& b) {
  if (a.entries.size() != b.entries.size()) return false;
  for (const auto& [key, value] : a.entries) {
    const Value* other = find(runtime, b, key);
    if (!other || !(value.same(*other) || equal(runtime, value, *other))) return false;
  }
  return true;
}

bool equal_ranges(const Range& a, const Range& b) {
  const int64_t n = a.size();
  return n == b.size() && (n == 0 || (a.begin == b.begin && (n == 1 || a.step == b.step)));
}

[[noreturn]] void fail_operands(Runtime& runtime, std::string_view symbol, const Value& a,
                                const Value& b) {
  if (a.undefined()) runtime.fail_undefined(a);
  if (b.undefined()) runtime.fail_undefined(b);
  runtime.fail("'{}' is not supported between '{}' and '{}'", symbol, type_name(a), type_name(b));
}

// Whether a < b by the first differing place, as Python orders lists and tuples.
bool less_items(Runtime& runtime, const std::vector<Value>& a, const std::vector<Value>& b,
                std::string_view symbol) {
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    if (a[i].same(b[i]) || equal(runtime, a[i], b[i])) continue;
    return less(runtime, a[i], b[i], symbol);
  }
  return a.size() < b.size();
}

Value concatenate(Runtime& runtime, const Str& a, const Str& b) {
  if (a.markup == b.markup) {
    Text out(runtime);
    out.append(a.text);
    out.append(b.text);
    return out.value(a.markup);
  }
  const Value left = escape_html(runtime, &a);
  const Value right = escape_html(runtime, &b);
  return concatenate(runtime, *left.str(), *right.str());
}

Value repeat(Runtime& runtime, const Str& text, int64_t times) {
  const auto n = static_cast<size_t>(std::max<int64_t>(times, 0));
  if (!text.text.empty() && n > runtime.limits().text_bytes / text.text.size()) {
    runtime.check_text(SIZE_MAX);
  }
  Text out(runtime);
  if (text.text.size() == 1) {
    out.append(n, text.text[0]);
  } else if (!text.text.empty()) {
    for (size_t i = 0; i < n; ++i) out.append(text.text);
  }
  return out.value(text.markup);
}

Value repeat(Runtime& runtime, const Sequence& sequence, int64_t times) {
  Items out(runtime);
  if (!sequence.items.empty()) {
    for (int64_t i = 0; i < times; ++i) {
      for (const Value& item : sequence.items) out.add(item);
    }
  }
  return sequence.kind == Sequence::Kind::tuple ? out.tuple() : out.list();
}

Value add(Runtime& runtime, const Value& a, const Value& b) {
  if (a.str() && b.str()) return concatenate(runtime, *a.str(), *b.str());
  const Sequence* left = a.sequence();
  const Sequence* right = b.sequence();
  if (left && right && left->kind == right->kind && left->indexable()) {
    Items out(runtime);
    for (const Value& item : left->items) out.add(item);
    for (const Value& item : right->items) out.add(item);
    return left->kind == Sequence::Kind::tuple ? out.tuple() : out.list();
  }
  fail_operands(runtime, "+", a, b);
}

Value multiply(Runtime& runtime, const Value& a, const Value& b) {
  int64_t times = 0;
  if (is_integer(b, &times)) {
    if (a.str()) return repeat(runtime, *a.str(), times);
    if (a.sequence() && a.sequence()->indexable()) return repeat(runtime, *a.sequence(), times);
  } else if (is_integer(a, &times)) {
    return multiply(runtime, b, a);
  }
  fail_operands(runtime, "*", a, b);
}

bool contains_text(Runtime& runtime, const Str& text, const Value& item) {
  if (item.undefined()) runtime.fail_undefined(item);
  if (!item.str()) {
    runtime.fail("'in <string>' requires string as left operand, not {}", type_name(item));
  }
  runtime.step(text.text.size() / 64);
  const std::string& needle = item.str()->text;
  return memmem(text.text.data(), text.text.size(), needle.data(), needle.size()) != nullptr;
}

}  // namespace

bool truthy(const Value& value) {
  struct Truth {
    bool operator()(None) const { return false; }
    bool operator()(bool b) const { return b; }
    bool operator()(int64_t i) const { return i != 0; }
    bool operator()(double d) const { return d != 0; }
    bool operator()(const Undefined*) const { return false; }
    bool operator()(const Str* s) const { return !s->text.empty(); }
    bool operator()(const Sequence* s) const { return !s->items.empty(); }
    bool operator()(const Dict* d) const { return !d->entries.empty(); }
    bool operator()(const Range* r) const { return r->size() > 0; }
    bool operator()(const Object*) const { return true; }
  };
  return value.visit(Truth{});
}

bool equal(Runtime& runtime, const Value& a, const Value& b) {
  const Depth depth(runtime);
  runtime.step();
  if (is_number(a) && is_number(b)) return compare_numbers(a, b) == 0;
  if (a.str() && b.str()) return a.str()->text == b.str()->text;
  if (a.undefined() && b.undefined()) return true;
  if (a.dict() && b.dict()) return equal_dicts(runtime, *a.dict(), *b.dict());
  const Sequence* left = a.sequence();
  const Sequence* right = b.sequence();
  if (left && right && left->kind == right->kind && left->kind != Sequence::Kind::values) {
    return equal_items(runtime, left->items, right->items);
  }
  const auto* range = a.get<const Range*>();
  const auto* other = b.get<const Range*>();
  if (range && other) return equal_ranges(*range, *other);
  return a.same(b);
}

bool less(Runtime& runtime, const Value& a, const Value& b, std::string_view symbol) {
  const Depth depth(runtime);
  runtime.step();
  if (is_number(a) && is_number(b)) return compare_numbers(a, b) == -1;
  // Byte order of UTF-8 is code point order.
  if (a.str() && b.str()) return a.str()->text < b.str()->text;
  const Sequence* left = a.sequence();
  const Sequence* right = b.sequence();
  if (left && right && left->kind == right->kind && left->indexable()) {
    return less_items(runtime, left->items, right->items, symbol);
  }
  fail_operands(runtime, symbol, a, b);
}

bool contains(Runtime& runtime, const Value& container, const Value& item) {
  if (const Str* text = container.str()) return contains_text(runtime, *text, item);
  if (const Dict* dict = container.dict()) return find(runtime, *dict, item) != nullptr;
  const auto iterator = make_iterator(runtime, container);
  Value candidate;
  while (iterator->next(runtime, candidate)) {
    if (candidate.same(item) || equal(runtime, candidate, item)) return true;
  }
  return false;
}

bool compare(Runtime& runtime, Comparison op, const Value& a, const Value& b) {
  const bool nan = is_number(a) && is_number(b) && compare_numbers(a, b) == 2;
  switch (op) {
    case Comparison::eq:
      return equal(runtime, a, b);
    case Comparison::ne:
      return !equal(runtime, a, b);
    case Comparison::lt:
      return less(runtime, a, b, "<");
    case Comparison::le:
      return !nan && !less(runtime, b, a, "<=");
    case Comparison::gt:
      return less(runtime, b, a, ">");
    case Comparison::ge:
      return !nan && !less(runtime, a, b, ">=");
    case Comparison::in:
      return contains(runtime, b, a);
    case Comparison::not_in:
      return !contains(runtime, b, a);
  }
  return false;
}

Value binary(Runtime& runtime, Arithmetic op, const Value& left, const Value& right) {
  if (op == Arithmetic::mod && left.str()) return format_printf(runtime, *left.str(), right);
  if (is_number(left) && is_number(right)) return arithmetic(runtime, op, left, right);
  if (op == Arithmetic::add) return add(runtime, left, right);
  if (op == Arithmetic::mul) return multiply(runtime, left, right);
  fail_operands(runtime, symbol(op), left, right);
}

Value plus(Runtime& runtime, const Value& value) {
  int64_t i = 0;
  if (is_integer(value, &i)) return i;
  if (value.get_if<double>()) return value;
  if (value.undefined()) runtime.fail_undefined(value);
  runtime.fail("'{}' has no sign", type_name(value));
}

Value negate(Runtime& runtime, const Value& value) {
  const Value number = plus(runtime, value);
  if (const double* d = number.get_if<double>()) return -*d;
  return arithmetic(runtime, Arithmetic::sub, int64_t{0}, number);
}

bool hashable(const Value& value) {
  if (value.dict()) return false;
  const Sequence* sequence = value.sequence();
  if (!sequence) return true;
  return sequence->kind == Sequence::Kind::values ||
         (sequence->kind == Sequence::Kind::tuple &&
          std::all_of(sequence->items.begin(), sequence->items.end(), hashable));
}

const Value* find(Runtime& runtime, const Dict& dict, const Value& key) {
  if (const Str* text = key.str()) return find(runtime, dict, text->text);
  if (!hashable(key)) runtime.fail("unhashable type: '{}'", type_name(key));
  for (const auto& [name, value] : dict.entries) {
    if (name.same(key) || equal(runtime, name, key)) return &value;
  }
  return nullptr;
}

const Value* find(Runtime& runtime, const Dict& dict, std::string_view key) {
  runtime.step(dict.entries.size() / 8);
  for (const auto& [name, value] : dict.entries) {
    if (name.str() && name.str()->text == key) return &value;
  }
  return nullptr;
}

void insert(Runtime& runtime, Dict& dict, const Value& key, const Value& value) {
  if (const Value* found = find(runtime, dict, key)) {
    *const_cast<Value*>(found) = value;
    return;
  }
  runtime.charge(4 * sizeof(Value));
  dict.entries.emplace_back(key, value);
}

}  // namespace braid::jinja
