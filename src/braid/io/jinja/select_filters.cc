#include <algorithm>

#include "braid/io/jinja/access.h"
#include "braid/io/jinja/args.h"
#include "braid/io/jinja/filters.h"
#include "braid/io/jinja/iterate.h"
#include "braid/io/jinja/operators.h"
#include "braid/io/jinja/table.h"
#include "braid/io/jinja/tests.h"

namespace braid::jinja {
namespace {

std::string name_argument(Runtime& runtime, const Value& value, std::string_view what) {
  if (!value.str()) runtime.fail("the {} name must be str, not {}", what, type_name(value));
  return value.str()->text;
}

Args drop(const Args& args, size_t n) {
  Args rest;
  rest.named = args.named;
  rest.positional.assign(args.positional.begin() + static_cast<ptrdiff_t>(n),
                         args.positional.end());
  return rest;
}

// Items of `input`; `step` makes or drops each output; nothing runs before an output is asked for.
template <class Step>
Value lazy(Runtime& runtime, const Value& input, Step step) {
  return make_generator(runtime,
                        [input, step = std::move(step), source = static_cast<Iterator*>(nullptr)](
                            Runtime& rt, Value& value) mutable {
                          if (!source) {
                            if (!truthy(input)) return false;
                            source = make_iterator(rt, input);
                          }
                          while (source->next(rt, value)) {
                            if (step(rt, value)) return true;
                          }
                          return false;
                        });
}

Value map_attribute(Runtime& runtime, const Value& input, const Args& args) {
  Value attribute;
  Value fallback;
  for (const auto& [name, value] : args.named) {
    if (name == "attribute") {
      attribute = value;
    } else if (name == "default") {
      fallback = value;
    } else {
      runtime.fail("map: unexpected keyword argument '{}'", name);
    }
  }
  return lazy(runtime, input,
              [path = Path(runtime, attribute), fallback](Runtime& rt, Value& value) {
                value = path(rt, value, fallback);
                return true;
              });
}

Value map(Runtime& runtime, const Value& input, const Args& args) {
  if (args.positional.empty()) {
    const bool attribute = std::any_of(args.named.begin(), args.named.end(), [](const auto& named) {
      return named.first == "attribute";
    });
    if (attribute) return map_attribute(runtime, input, args);
    runtime.fail("map requires a filter argument");
  }
  return lazy(runtime, input,
              [name = name_argument(runtime, args.positional[0], "filter"), rest = drop(args, 1)](
                  Runtime& rt, Value& value) {
                value = apply_filter(rt, name, value, rest);
                return true;
              });
}

template <bool kWanted, bool kAttribute>
Value select(Runtime& runtime, const Value& input, const Args& args) {
  constexpr size_t kTest = kAttribute ? 1 : 0;
  if (args.positional.size() < kTest) runtime.fail("Missing parameter for attribute name");
  const Path path(runtime, kAttribute ? args.positional[0] : Value());
  if (args.positional.size() == kTest) {
    return lazy(runtime, input, [path](Runtime& rt, const Value& value) {
      return truthy(path(rt, value)) == kWanted;
    });
  }
  return lazy(runtime, input,
              [path, name = name_argument(runtime, args.positional[kTest], "test"),
               rest = drop(args, kTest + 1)](Runtime& rt, const Value& value) {
                return apply_test(rt, name, path(rt, value), rest) == kWanted;
              });
}

Value default_value(Runtime& runtime, const Value& input, const Args& args) {
  const Bound bound(runtime, "default", args, {"default_value", "boolean"});
  if (!input.undefined() && !(bound.flag(1) && !truthy(input))) return input;
  return bound.has(0) ? bound[0] : runtime.str("");
}

Value attribute(Runtime& runtime, const Value& input, const Args& args) {
  const Bound bound(runtime, "attr", args, {"name"}, 1);
  name_argument(runtime, bound[0], "attribute");
  if (input.dict() && !input.undefined()) {
    const Value found = get_attribute(runtime, input, bound[0]);
    const Value* item = find(runtime, *input.dict(), bound[0]);
    if (item && found.same(*item)) return runtime.undefined("dict object has no such attribute");
    return found;
  }
  return get_attribute(runtime, input, bound[0]);
}

constexpr FilterEntry kFilters[] = {{"attr", attribute},
                                    {"d", default_value},
                                    {"default", default_value},
                                    {"map", map},
                                    {"reject", select<false, false>},
                                    {"rejectattr", select<false, true>},
                                    {"select", select<true, false>},
                                    {"selectattr", select<true, true>}};

}  // namespace

Filter find_select_filter(std::string_view name) {
  const FilterEntry* entry = find_entry(kFilters, name);
  return entry ? entry->filter : nullptr;
}

}  // namespace braid::jinja
