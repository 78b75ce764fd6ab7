#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace braid::jinja {

class Runtime;
class Value;

struct None {};

// Base of everything a Value points to. Objects belong to a Runtime (or, for literals, to the
// Template) and live until it goes, so a Value is a plain pointer and cycles cannot leak.
struct Object {
  Object() = default;
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;
  virtual ~Object() = default;
};

struct Undefined;
struct Str;
struct Sequence;
struct Dict;
struct Range;
class Iterator;
class Instance;

// A Python value as a template sees it. All are immutable but namespaces, loops and iterators.
class Value {
 public:
  using Data = std::variant<None, bool, int64_t, double, const Undefined*, const Str*,
                            const Sequence*, const Dict*, const Range*, Iterator*, Instance*>;

  Value() = default;
  Value(None) {}
  Value(std::same_as<bool> auto b) : data_(std::in_place_type<bool>, b) {}
  Value(std::same_as<int64_t> auto i) : data_(std::in_place_type<int64_t>, i) {}
  Value(std::same_as<double> auto d) : data_(std::in_place_type<double>, d) {}
  Value(const Undefined* p) : data_(p) {}
  Value(const Str* p) : data_(p) {}
  Value(const Sequence* p) : data_(p) {}
  Value(const Dict* p) : data_(p) {}
  Value(const Range* p) : data_(p) {}
  Value(Iterator* p) : data_(p) {}
  Value(Instance* p) : data_(p) {}

  // The alternative T, or null: `if (auto* list = value.get<const Sequence*>())`.
  template <class T>
  const T* get_if() const {
    return std::get_if<T>(&data_);
  }
  template <class T>
  T get() const {
    const T* p = std::get_if<T>(&data_);
    return p ? *p : T{};
  }
  bool is_none() const { return std::holds_alternative<None>(data_); }
  const Str* str() const { return get<const Str*>(); }
  const Undefined* undefined() const { return get<const Undefined*>(); }
  const Sequence* sequence() const { return get<const Sequence*>(); }
  const Dict* dict() const { return get<const Dict*>(); }
  Instance* instance() const { return get<Instance*>(); }
  bool same(const Value& other) const;  // Python's `is`
  template <class F>
  decltype(auto) visit(F&& f) const {
    return std::visit(std::forward<F>(f), data_);
  }

 private:
  Data data_;
};

struct Undefined final : Object {
  explicit Undefined(std::string w) : why(std::move(w)) {}
  const std::string why;  // the error that any use beyond printing and testing raises
};

struct Str final : Object {
  explicit Str(std::string t, bool safe = false);
  bool ascii() const { return length == static_cast<int64_t>(text.size()); }

  const std::string text;  // valid UTF-8
  const int64_t length;    // code points
  const bool markup;       // escaped for HTML already (the filters safe and escape)
};

// list, tuple, or the result of dict.items(), keys() or values().
struct Sequence final : Object {
  enum class Kind { list, tuple, items, keys, values };
  Sequence(Kind k, std::vector<Value> v) : kind(k), items(std::move(v)) {}
  bool indexable() const { return kind == Kind::list || kind == Kind::tuple; }

  const Kind kind;
  const std::vector<Value> items;
};

struct Dict final : Object {
  std::vector<std::pair<Value, Value>> entries;  // in insertion order, keys unique
};

struct Range final : Object {
  Range(int64_t b, int64_t e, int64_t s) : begin(b), end(e), step(s) {}
  int64_t size() const;
  int64_t at(int64_t i) const { return begin + i * step; }
  const int64_t begin, end, step;
};

// A Python iterator: single pass, always true, without a length. Lazy filters make these.
class Iterator : public Object {
 public:
  virtual bool next(Runtime& runtime, Value& value) = 0;
};

// Arguments of a call, a filter or a test, evaluated.
struct Args {
  std::vector<Value> positional;
  std::vector<std::pair<std::string_view, Value>> named;
};

// Objects with attributes or behaviour: functions, macros, namespaces, loops.
class Instance : public Object {
 public:
  virtual std::string_view type_name() const = 0;
  virtual const Value* attribute(Runtime&, std::string_view) { return nullptr; }
  virtual bool callable() const { return false; }
  virtual Value call(Runtime& runtime, const Args& args);
};

// Python's name of the type, as in Python's error messages.
std::string_view type_name(const Value& value);

bool is_number(const Value& value);                 // bool, int or float
bool is_integer(const Value& value, int64_t* out);  // bool or int
double to_double(const Value& number);

}  // namespace braid::jinja
