#include "braid/io/jinja/access.h"

#include <algorithm>

#include "braid/io/jinja/methods.h"
#include "braid/io/jinja/number.h"
#include "braid/io/jinja/operators.h"
#include "braid/io/jinja/text.h"
#include "braid/io/jinja/utf8.h"

namespace braid::jinja {
namespace {

std::string describe(const Value& object) {
  if (object.is_none()) return "None";
  return fmt::format("{} object", type_name(object));
}

Value missing(Runtime& runtime, const Value& object, const Value& key) {
  if (key.str()) {
    return runtime.undefined(
        fmt::format("'{}' has no attribute {}", describe(object), quote(key.str()->text)));
  }
  return runtime.undefined(
      fmt::format("{} has no element {}", describe(object), to_repr(runtime, key)));
}

std::optional<Value> python_attribute(Runtime& runtime, const Value& object,
                                      std::string_view name) {
  if (Instance* instance = object.instance()) {
    const Value* found = instance->attribute(runtime, name);
    return found ? std::optional<Value>(*found) : std::nullopt;
  }
  return find_method(runtime, object, name);
}

// An index that may count from the end, as a place; nothing if outside.
std::optional<int64_t> place(const Value& key, int64_t size) {
  int64_t i = 0;
  if (!is_integer(key, &i)) return std::nullopt;
  if (i < 0) i += size;
  return i >= 0 && i < size ? std::optional(i) : std::nullopt;
}

std::optional<Value> python_item(Runtime& runtime, const Value& object, const Value& key) {
  if (const Dict* dict = object.dict()) {
    if (!hashable(key)) return std::nullopt;
    const Value* found = find(runtime, *dict, key);
    return found ? std::optional<Value>(*found) : std::nullopt;
  }
  if (const Str* s = object.str()) {
    const auto at = place(key, s->length);
    if (!at) return std::nullopt;
    runtime.step(static_cast<uint64_t>(*at) / 64);
    size_t pos = s->ascii() ? static_cast<size_t>(*at) : utf8::offset(s->text, *at);
    const size_t begin = pos;
    utf8::next(s->text, pos);
    return runtime.str(s->text.substr(begin, pos - begin), s->markup);
  }
  if (const Sequence* s = object.sequence(); s && s->indexable()) {
    const auto at = place(key, static_cast<int64_t>(s->items.size()));
    if (at) return s->items[static_cast<size_t>(*at)];
  } else if (const auto* range = object.get<const Range*>()) {
    if (const auto at = place(key, range->size())) return Value(range->at(*at));
  }
  return std::nullopt;
}

struct Slice {
  int64_t start, stop, step, count;
};

std::optional<int64_t> bound(Runtime& runtime, const Value& value) {
  if (value.is_none()) return std::nullopt;
  int64_t i = 0;
  if (is_integer(value, &i)) return i;
  runtime.fail("slice indices must be integers or None, not {}", type_name(value));
}

Slice resolve(Runtime& runtime, int64_t size, const Value& start, const Value& stop,
              const Value& step) {
  const int64_t stride = bound(runtime, step).value_or(1);
  if (stride == 0) runtime.fail("slice step cannot be zero");
  const int64_t low = stride > 0 ? 0 : -1;
  const int64_t high = stride > 0 ? size : size - 1;
  const auto clamp = [&](const std::optional<int64_t>& at, int64_t otherwise) {
    if (!at) return otherwise;
    return std::clamp(*at < 0 ? *at + size : *at, low, high);
  };
  const int64_t from = clamp(bound(runtime, start), stride > 0 ? low : high);
  const int64_t to = clamp(bound(runtime, stop), stride > 0 ? high : low);
  return {from, to, stride, Range(from, to, stride).size()};
}

Value slice_text(Runtime& runtime, const Str& text, const Slice& slice) {
  runtime.charge(text.text.size());
  if (slice.count == 0) return runtime.str("", text.markup);
  if (slice.step == 1) {
    const size_t begin = utf8::offset(text.text, slice.start);
    const std::string_view rest = std::string_view(text.text).substr(begin);
    return runtime.str(std::string(rest.substr(0, utf8::offset(rest, slice.count))), text.markup);
  }
  const auto characters = utf8::split_characters(text.text);
  runtime.charge(characters.size() * sizeof(characters[0]));
  Text out(runtime);
  for (int64_t i = 0; i < slice.count; ++i) {
    out.append(characters[static_cast<size_t>(slice.start + i * slice.step)]);
  }
  return out.value(text.markup);
}

Value slice_range(Runtime& runtime, const Range& range, const Slice& slice) {
  const __int128 stride = __int128{range.step} * slice.step;
  const __int128 begin = range.begin + __int128{range.step} * slice.start;
  const __int128 end = range.begin + __int128{range.step} * slice.stop;
  const auto fits = [](__int128 i) { return i == static_cast<int64_t>(i); };
  if (!fits(stride) || !fits(begin) || !fits(end)) {
    runtime.fail("a slice of a range does not fit in 64 bits");
  }
  return runtime.make<Range>(static_cast<int64_t>(begin), static_cast<int64_t>(end),
                             static_cast<int64_t>(stride));
}

bool all_digits(std::string_view text) {
  return !text.empty() &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

}  // namespace

Value get_attribute(Runtime& runtime, const Value& object, const Value& name) {
  if (object.undefined()) runtime.fail_undefined(object);
  if (auto found = python_attribute(runtime, object, name.str()->text)) return *found;
  if (auto found = python_item(runtime, object, name)) return *found;
  return missing(runtime, object, name);
}

Value get_item(Runtime& runtime, const Value& object, const Value& key) {
  if (object.undefined()) runtime.fail_undefined(object);
  if (auto found = python_item(runtime, object, key)) return *found;
  if (key.str()) {
    if (auto found = python_attribute(runtime, object, key.str()->text)) return *found;
  }
  return missing(runtime, object, key);
}

Value get_slice(Runtime& runtime, const Value& object, const Value& start, const Value& stop,
                const Value& step) {
  if (object.undefined()) runtime.fail_undefined(object);
  if (const Str* s = object.str()) {
    return slice_text(runtime, *s, resolve(runtime, s->length, start, stop, step));
  }
  if (const Sequence* s = object.sequence(); s && s->indexable()) {
    const auto size = static_cast<int64_t>(s->items.size());
    const Slice slice = resolve(runtime, size, start, stop, step);
    Items out(runtime);
    for (int64_t i = 0; i < slice.count; ++i) {
      out.add(s->items[static_cast<size_t>(slice.start + i * slice.step)]);
    }
    return s->kind == Sequence::Kind::tuple ? out.tuple() : out.list();
  }
  if (const auto* range = object.get<const Range*>()) {
    return slice_range(runtime, *range, resolve(runtime, range->size(), start, stop, step));
  }
  runtime.fail("'{}' object cannot be sliced", type_name(object));
}

Path::Path(Runtime& runtime, const Value& attribute) {
  if (attribute.is_none()) return;
  if (!attribute.str()) {
    parts_.push_back(attribute);
    return;
  }
  std::string_view rest = attribute.str()->text;
  for (;;) {
    const size_t dot = std::min(rest.find('.'), rest.size());
    const std::string_view part = rest.substr(0, dot);
    parts_.push_back(all_digits(part) ? Value(parse_int(runtime, part, 10).value())
                                      : runtime.str(std::string(part)));
    if (dot == rest.size()) break;
    rest.remove_prefix(dot + 1);
  }
}

Value Path::operator()(Runtime& runtime, Value item, const Value& fallback) const {
  for (const Value& part : parts_) {
    item = get_item(runtime, item, part);
    if (item.undefined() && !fallback.is_none()) item = fallback;
  }
  return item;
}

}  // namespace braid::jinja
