#pragma once

#include <ctime>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "braid/base/error.h"
#include "braid/io/jinja/value.h"

namespace braid::jinja {

// Limits of a rendering. A template comes from a model file and is not trusted.
struct Limits {
  uint64_t steps = 20'000'000;            // nodes evaluated, items visited, 64-byte pieces written
  size_t heap_bytes = size_t{512} << 20;  // all values made, over the whole rendering
  size_t text_bytes = size_t{64} << 20;   // the longest string, the output included
  int depth = 600;                        // nested evaluations, macro calls and values
};

// The state of a rendering: owns the values made, counts use against the limits, and knows the
// running line. Every function that can fail or allocate takes a Runtime.
class Runtime {
 public:
  explicit Runtime(const Limits& limits = {}, std::optional<std::tm> now = std::nullopt)
      : limits_(limits), now_(now) {}

  template <class T, class... A>
  T* make(A&&... args) {
    charge(sizeof(T) + sizeof(void*));
    auto object = std::make_unique<T>(std::forward<A>(args)...);
    T* raw = object.get();
    objects_.push_back(std::move(object));
    return raw;
  }
  Value str(std::string text, bool markup = false);
  Value list(std::vector<Value> items);
  Value tuple(std::vector<Value> items);
  Value sequence(Sequence::Kind kind, std::vector<Value> items);
  Value undefined(std::string why);

  // Counts work, and memory before it is allocated; both throw kResource at their limit.
  void step(uint64_t n = 1) {
    steps_ += n;
    if (steps_ > limits_.steps) [[unlikely]]
      fail_steps();
  }
  void charge(size_t bytes);
  // Throws if a string with `bytes` would be too long; `bytes` may be any product of sizes.
  void check_text(size_t bytes) const;

  template <class... A>
  [[noreturn]] void fail(fmt::format_string<A...> format, A&&... args) const {
    fail_as(ErrorCode::kInvalidArgument, fmt::format(format, std::forward<A>(args)...));
  }
  [[noreturn]] void fail_as(ErrorCode code, const std::string& message) const;
  [[noreturn]] void fail_undefined(const Value& value) const;

  void set_line(int line) { line_ = line; }
  int line() const { return line_; }
  const Limits& limits() const { return limits_; }
  std::tm now() const;

 private:
  friend class Depth;
  [[noreturn]] void fail_steps() const;
  [[noreturn]] void fail_depth() const;

  Limits limits_;
  std::optional<std::tm> now_;
  std::vector<std::unique_ptr<Object>> objects_;
  uint64_t steps_ = 0;
  size_t heap_ = 0;
  int depth_ = 0;
  int line_ = 1;
};

// A level of recursion, in evaluation or into a nested value.
class Depth {
 public:
  explicit Depth(Runtime& runtime) : runtime_(runtime) {
    if (++runtime_.depth_ > runtime_.limits_.depth) {
      --runtime_.depth_;
      runtime_.fail_depth();
    }
  }
  ~Depth() { --runtime_.depth_; }
  Depth(const Depth&) = delete;
  Depth& operator=(const Depth&) = delete;

 private:
  Runtime& runtime_;
};

// A string under construction, charged as it grows.
class Text {
 public:
  explicit Text(Runtime& runtime) : runtime_(runtime) {}
  void append(std::string_view piece) {
    runtime_.check_text(text_.size() + piece.size());
    runtime_.charge(piece.size());
    text_ += piece;
  }
  void append(size_t n, char c) {
    runtime_.check_text(n);
    runtime_.check_text(text_.size() + n);
    runtime_.charge(n);
    text_.append(n, c);
  }
  const std::string& view() const { return text_; }
  std::string take() { return std::move(text_); }
  Value value(bool markup = false) { return runtime_.make<Str>(std::move(text_), markup); }

 private:
  Runtime& runtime_;
  std::string text_;
};

// Items under construction, charged as they come.
class Items {
 public:
  explicit Items(Runtime& runtime) : runtime_(runtime) {}
  void add(Value value) {
    runtime_.charge(2 * sizeof(Value));
    items_.push_back(value);
  }
  std::vector<Value> take() { return std::move(items_); }
  const std::vector<Value>& view() const { return items_; }
  Value list() { return runtime_.make<Sequence>(Sequence::Kind::list, take()); }
  Value tuple() { return runtime_.make<Sequence>(Sequence::Kind::tuple, take()); }

 private:
  Runtime& runtime_;
  std::vector<Value> items_;
};

}  // namespace braid::jinja
