#include "braid/io/jinja/methods.h"

#include <algorithm>
#include <iterator>

#include "braid/io/jinja/args.h"
#include "braid/io/jinja/function.h"
#include "braid/io/jinja/iterate.h"
#include "braid/io/jinja/operators.h"
#include "braid/io/jinja/table.h"

namespace braid::jinja {
namespace {

Value dict_get(Runtime& runtime, const Value& self, const Args& args) {
  const Bound bound(runtime, "get", args, {"key", "default"}, 1);
  const Value* found = find(runtime, *self.dict(), bound[0]);
  return found ? *found : bound.get(1, None{});
}

Value dict_items(Runtime& runtime, const Value& self, const Args& args) {
  const Bound bound(runtime, "items", args, {});
  std::vector<Value> items;
  for (const auto& [key, value] : self.dict()->entries) {
    items.push_back(runtime.tuple({key, value}));
  }
  return runtime.sequence(Sequence::Kind::items, std::move(items));
}

Value dict_keys(Runtime& runtime, const Value& self, const Args& args) {
  const Bound bound(runtime, "keys", args, {});
  return runtime.sequence(Sequence::Kind::keys, collect(runtime, self));
}

Value dict_values(Runtime& runtime, const Value& self, const Args& args) {
  const Bound bound(runtime, "values", args, {});
  std::vector<Value> values;
  for (const auto& entry : self.dict()->entries) values.push_back(entry.second);
  return runtime.sequence(Sequence::Kind::values, std::move(values));
}

Value copy(Runtime& runtime, const Value& self, const Args& args) {
  const Bound bound(runtime, "copy", args, {});
  return self;  // nothing can modify either
}

Value sequence_count(Runtime& runtime, const Value& self, const Args& args) {
  const Bound bound(runtime, "count", args, {"value"}, 1);
  int64_t n = 0;
  for (const Value& item : self.sequence()->items) {
    n += item.same(bound[0]) || equal(runtime, item, bound[0]);
  }
  return n;
}

Value sequence_index(Runtime& runtime, const Value& self, const Args& args) {
  const Bound bound(runtime, "index", args, {"value"}, 1);
  const auto& items = self.sequence()->items;
  for (size_t i = 0; i < items.size(); ++i) {
    if (items[i].same(bound[0]) || equal(runtime, items[i], bound[0])) {
      return static_cast<int64_t>(i);
    }
  }
  runtime.fail("the value is not in the {}", type_name(self));
}

constexpr MethodEntry kDictMethods[] = {{"copy", copy},
                                        {"get", dict_get},
                                        {"items", dict_items},
                                        {"keys", dict_keys},
                                        {"values", dict_values}};
constexpr MethodEntry kListMethods[] = {
    {"copy", copy}, {"count", sequence_count}, {"index", sequence_index}};
constexpr MethodEntry kTupleMethods[] = {{"count", sequence_count}, {"index", sequence_index}};
constexpr std::string_view kDictMutators[] = {"clear", "pop", "popitem", "setdefault", "update"};
constexpr std::string_view kListMutators[] = {"append", "clear",  "extend",  "insert",
                                              "pop",    "remove", "reverse", "sort"};

template <class Names>
bool among(const Names& names, std::string_view name) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

bool mutator(const Value& self, std::string_view name) {
  if (self.dict()) return among(kDictMutators, name);
  const Sequence* s = self.sequence();
  return s && s->kind == Sequence::Kind::list && among(kListMutators, name);
}

}  // namespace

const MethodEntry* find_container_method(const Value& self, std::string_view name) {
  if (self.dict()) return find_entry(kDictMethods, name);
  const Sequence* s = self.sequence();
  if (!s || !s->indexable()) return nullptr;
  return s->kind == Sequence::Kind::list ? find_entry(kListMethods, name)
                                         : find_entry(kTupleMethods, name);
}

std::optional<Value> find_method(Runtime& runtime, const Value& self, std::string_view name) {
  if (mutator(self, name)) {
    return runtime.undefined(
        fmt::format("access to attribute '{}' of '{}' object is unsafe.", name, type_name(self)));
  }
  const MethodEntry* entry = self.str() ? find_str_method(name) : find_container_method(self, name);
  if (!entry) return std::nullopt;
  return runtime.make<Function>(std::string(name),
                                [self, method = entry->method](Runtime& rt, const Args& args) {
                                  return method(rt, self, args);
                                });
}

}  // namespace braid::jinja
