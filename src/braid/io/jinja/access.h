#pragma once

#include <string_view>

#include "braid/io/jinja/runtime.h"

// object.name, object[key] and object[a:b:c]. There is nothing to reach but the methods listed in
// methods.h, the attributes of namespaces, loops and macros, and the items of the data.
namespace braid::jinja {

Value get_attribute(Runtime& runtime, const Value& object, const Value& name);  // name: a str
Value get_item(Runtime& runtime, const Value& object, const Value& key);
Value get_slice(Runtime& runtime, const Value& object, const Value& start, const Value& stop,
                const Value& step);

// An attribute path such as "function.name" or "0.role", as filters take it.
class Path {
 public:
  // `attribute` is a str, an int or None (the item itself).
  Path(Runtime& runtime, const Value& attribute);
  // A `fallback` that is not None stands for every undefined part.
  Value operator()(Runtime& runtime, Value item, const Value& fallback = {}) const;

 private:
  std::vector<Value> parts_;
};

}  // namespace braid::jinja
