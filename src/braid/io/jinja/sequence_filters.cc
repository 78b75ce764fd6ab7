#include <algorithm>

#include "braid/io/jinja/access.h"
#include "braid/io/jinja/args.h"
#include "braid/io/jinja/filters.h"
#include "braid/io/jinja/iterate.h"
#include "braid/io/jinja/operators.h"
#include "braid/io/jinja/table.h"
#include "braid/io/jinja/text.h"
#include "braid/io/jinja/utf8.h"

namespace braid::jinja {
namespace {

Value length_filter(Runtime& runtime, const Value& input, const Args& args) {
  const Bound bound(runtime, "length", args, {});
  if (Instance* instance = input.instance()) {
    const Value* n =
        instance->type_name() == "LoopContext" ? instance->attribute(runtime, "length") : nullptr;
    if (n) return *n;
  }
  const auto n = length(input);
  if (!n) runtime.fail("object of type '{}' has no len()", type_name(input));
  return *n;
}

Value first(Runtime& runtime, const Value& input, const Args& args) {
  const Bound bound(runtime, "first", args, {});
  Value item;
  if (make_iterator(runtime, input)->next(runtime, item)) return item;
  return runtime.undefined("No first item, sequence was empty.");
}

// The items backwards, for inputs that Python can reverse: not an iterator.
std::optional<std::vector<Value>> reversed(Runtime& runtime, const Value& input) {
  if (!iterable(input) || input.get<Iterator*>()) return std::nullopt;
  std::vector<Value> items = collect(runtime, input);
  std::reverse(items.begin(), items.end());
  return items;
}

Value last(Runtime& runtime, const Value& input, const Args& args) {
  const Bound bound(runtime, "last", args, {});
  if (input.undefined()) return runtime.undefined("No last item, sequence was empty.");
  const auto items = reversed(runtime, input);
  if (!items) runtime.fail("'{}' object is not reversible", type_name(input));
  if (items->empty()) return runtime.undefined("No last item, sequence was empty.");
  return items->front();
}

Value generator_of(Runtime& runtime, std::vector<Value> items) {
  const Value list = runtime.list(std::move(items));
  return make_iterator(runtime, list);
}

Value reverse(Runtime& runtime, const Value& input, const Args& args) {
  const Bound bound(runtime, "reverse", args, {});
  if (const Str* s = input.str()) {
    auto characters = utf8::split_characters(s->text);
    runtime.charge(characters.size() * sizeof(characters[0]));
    Text out(runtime);
    for (auto at = characters.rbegin(); at != characters.rend(); ++at) out.append(*at);
    return out.value(s->markup);
  }
  if (auto items = reversed(runtime, input)) return generator_of(runtime, std::move(*items));
  std::vector<Value> items = collect(runtime, input);
  std::reverse(items.begin(), items.end());
  return runtime.list(std::move(items));
}

Value list(Runtime& runtime, const Value& input, const Args& args) {
  const Bound bound(runtime, "list", args, {});
  return runtime.list(collect(runtime, input));
}

Value items(Runtime& runtime, const Value& input, const Args& args) {
  const Bound bound(runtime, "items", args, {});
  return make_generator(runtime, [input, i = size_t{0}](Runtime& rt, Value& value) mutable {
    if (input.undefined()) return false;
    if (!input.dict()) rt.fail("Can only get item pairs from a mapping.");
    if (i >= input.dict()->entries.size()) return false;
    const auto& entry = input.dict()->entries[i++];
    value = rt.tuple({entry.first, entry.second});
    return true;
  });
}

Value lower_if_text(Runtime& runtime, const Value& value) {
  return value.str() ? runtime.str(utf8::lower(value.str()->text)) : value;
}

// Sorts items by a key made of each, stably; Python sorts descending without losing stability.
template <class Key>
std::vector<Value> sorted(Runtime& runtime, const std::vector<Value>& items, bool descending,
                          Key&& key) {
  std::vector<std::pair<Value, Value>> keyed;
  runtime.charge(items.size() * sizeof(keyed[0]));
  for (const Value& item : items) keyed.emplace_back(key(item), item);
  std::stable_sort(keyed.begin(), keyed.end(), [&](const auto& a, const auto& b) {
    return descending ? less(runtime, b.first, a.first) : less(runtime, a.first, b.first);
  });
  std::vector<Value> result;
  for (const auto& entry : keyed) result.push_back(entry.second);
  return result;
}

// The attributes of "name,address.city": a list with a path for each.
std::vector<Path> paths(Runtime& runtime, const Value& attribute) {
  if (!attribute.str()) return {Path(runtime, attribute)};
  std::vector<Path> result;
  std::string_view rest = attribute.str()->text;
  for (size_t comma = 0; comma != std::string_view::npos; rest.remove_prefix(comma + 1)) {
    comma = rest.find(',');
    result.emplace_back(runtime, runtime.str(std::string(rest.substr(0, comma))));
    if (comma == std::string_view::npos) break;
  }
  return result;
}

Value sort(Runtime& runtime, const Value& input, const Args& args) {
  const Bound bound(runtime, "sort", args, {"reverse", "case_sensitive", "attribute"});
  const auto keys = paths(runtime, bound.get(2, None{}));
  const auto key = [&](const Value& item) {
    std::vector<Value> parts;
    for (const Path& path : keys) {
      const Value part = path(runtime, item);
      parts.push_back(bound.flag(1) ? part : lower_if_text(runtime, part));
    }
    return runtime.list(std::move(parts));
  };
  return runtime.list(sorted(runtime, collect(runtime, input), bound.flag(0), key));
}

Value dictsort(Runtime& runtime, const Value& input, const Args& args) {
  const Bound bound(runtime, "dictsort", args, {"case_sensitive", "by", "reverse"});
  const std::string_view by = bound.text(1, "key");
  if (by != "key" && by != "value") {
    runtime.fail("dictsort: by must be \"key\" or \"value\", not {}", quote(by));
  }
  if (input.undefined()) runtime.fail_undefined(input);
  if (!input.dict()) runtime.fail("'{}' object has no items", type_name(input));
  std::vector<Value> pairs;
  for (const auto& [key, value] : input.dict()->entries) {
    pairs.push_back(runtime.tuple({key, value}));
  }
  const auto key = [&](const Value& pair) {
    const Value part = pair.sequence()->items[by == "value"];
    return bound.flag(0) ? part : lower_if_text(runtime, part);
  };
  return runtime.list(sorted(runtime, pairs, bound.flag(2), key));
}

Value unique(Runtime& runtime, const Value& input, const Args& args) {
  const Bound bound(runtime, "unique", args, {"case_sensitive", "attribute"});
  return make_generator(runtime, [input, path = Path(runtime, bound.get(1, None{})),
                                  exact = bound.flag(0), source = static_cast<Iterator*>(nullptr),
                                  seen = runtime.make<Dict>()](Runtime& rt, Value& value) mutable {
    if (!source) source = make_iterator(rt, input);
    while (source->next(rt, value)) {
      const Value raw = path(rt, value);
      const Value key = exact ? raw : lower_if_text(rt, raw);
      if (find(rt, *seen, key)) continue;
      insert(rt, *seen, key, None{});
      return true;
    }
    return false;
  });
}

template <bool kMax>
Value extreme(Runtime& runtime, const Value& input, const Args& args) {
  const Bound bound(runtime, kMax ? "max" : "min", args, {"case_sensitive", "attribute"});
  const Path path(runtime, bound.get(1, None{}));
  const auto key = [&](const Value& item) {
    const Value part = path(runtime, item);
    return bound.flag(0) ? part : lower_if_text(runtime, part);
  };
  Iterator* source = make_iterator(runtime, input);
  Value best;
  if (!source->next(runtime, best)) {
    return runtime.undefined("No aggregated item, sequence was empty.");
  }
  Value best_key = key(best);
  for (Value item; source->next(runtime, item);) {
    const Value item_key = key(item);
    if (kMax ? less(runtime, best_key, item_key) : less(runtime, item_key, best_key)) {
      best = item;
      best_key = item_key;
    }
  }
  return best;
}

Value sum(Runtime& runtime, const Value& input, const Args& args) {
  const Bound bound(runtime, "sum", args, {"attribute", "start"});
  const Path path(runtime, bound.get(0, None{}));
  Value total = bound.get(1, int64_t{0});
  if (total.str()) runtime.fail("sum: can't sum strings, use join");
  Iterator* source = make_iterator(runtime, input);
  for (Value item; source->next(runtime, item);) {
    total = binary(runtime, Arithmetic::add, total, path(runtime, item));
  }
  return total;
}

Value batch(Runtime& runtime, const Value& input, const Args& args) {
  const Bound bound(runtime, "batch", args, {"linecount", "fill_with"}, 1);
  const int64_t n = bound.integer(0, 0);
  const Value fill = bound.get(1, None{});
  return make_generator(runtime, [input, n, fill, source = static_cast<Iterator*>(nullptr)](
                                     Runtime& rt, Value& value) mutable {
    if (!source) source = make_iterator(rt, input);
    Items row(rt);
    Value item;
    while (static_cast<int64_t>(row.view().size()) != std::max<int64_t>(n, 1) &&
           source->next(rt, item)) {
      row.add(item);
    }
    if (row.view().empty()) return false;
    while (!fill.is_none() && static_cast<int64_t>(row.view().size()) < n) row.add(fill);
    value = row.list();
    return true;
  });
}

Value groupby(Runtime& runtime, const Value& input, const Args& args) {
  const Bound bound(runtime, "groupby", args, {"attribute", "default", "case_sensitive"}, 1);
  const Path path(runtime, bound[0]);
  const auto raw = [&](const Value& item) { return path(runtime, item, bound.get(1, None{})); };
  const auto key = [&](const Value& item) {
    return bound.flag(2) ? raw(item) : lower_if_text(runtime, raw(item));
  };
  const auto ordered = sorted(runtime, collect(runtime, input), false, key);
  std::vector<Value> groups;
  for (size_t i = 0; i < ordered.size();) {
    const Value group_key = key(ordered[i]);
    const size_t begin = i;
    while (i < ordered.size() && equal(runtime, key(ordered[i]), group_key)) ++i;
    if (i == begin) ++i;  // a NaN equals nothing, itself included
    const std::vector<Value> members(ordered.begin() + static_cast<ptrdiff_t>(begin),
                                     ordered.begin() + static_cast<ptrdiff_t>(i));
    groups.push_back(runtime.tuple({raw(ordered[begin]), runtime.list(members)}));
  }
  return runtime.list(std::move(groups));
}

constexpr FilterEntry kFilters[] = {{"batch", batch},        {"count", length_filter},
                                    {"dictsort", dictsort},  {"first", first},
                                    {"groupby", groupby},    {"items", items},
                                    {"last", last},          {"length", length_filter},
                                    {"list", list},          {"max", extreme<true>},
                                    {"min", extreme<false>}, {"reverse", reverse},
                                    {"sort", sort},          {"sum", sum},
                                    {"unique", unique}};

}  // namespace

Filter find_sequence_filter(std::string_view name) {
  const FilterEntry* entry = find_entry(kFilters, name);
  return entry ? entry->filter : nullptr;
}

}  // namespace braid::jinja
