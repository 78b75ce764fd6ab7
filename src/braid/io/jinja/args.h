#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "braid/io/jinja/runtime.h"

namespace braid::jinja {

// Arguments matched to the parameters of a built-in function as Python matches them. Fails for too
// many, unknown, doubled, or missing ones (the first `required` have no default).
class Bound {
 public:
  Bound(Runtime& runtime, std::string_view function, const Args& args,
        std::initializer_list<std::string_view> parameters, size_t required = 0);

  bool has(size_t i) const { return values_[i].has_value(); }
  const Value& operator[](size_t i) const { return *values_[i]; }
  Value get(size_t i, Value otherwise) const { return values_[i].value_or(otherwise); }
  bool flag(size_t i, bool otherwise = false) const;
  int64_t integer(size_t i, int64_t otherwise) const;  // fails for other types
  // The text of a str; fails for other types.
  std::string_view text(size_t i, std::string_view otherwise = {}) const;
  // Whether the argument is there and not None.
  bool given(size_t i) const { return has(i) && !values_[i]->is_none(); }

 private:
  Runtime& runtime_;
  std::string_view function_;
  std::vector<std::string_view> parameters_;
  std::vector<std::optional<Value>> values_;
};

}  // namespace braid::jinja
