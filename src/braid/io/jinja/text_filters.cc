#include <algorithm>

#include "braid/io/jinja/access.h"
#include "braid/io/jinja/args.h"
#include "braid/io/jinja/filters.h"
#include "braid/io/jinja/format.h"
#include "braid/io/jinja/iterate.h"
#include "braid/io/jinja/json.h"
#include "braid/io/jinja/operators.h"
#include "braid/io/jinja/str_search.h"
#include "braid/io/jinja/table.h"
#include "braid/io/jinja/text.h"
#include "braid/io/jinja/utf8.h"

namespace braid::jinja {
namespace {

// The value as a str; a value marked safe stays safe.
Value soft_str(Runtime& runtime, const Value& value) {
  return value.str() ? value : runtime.str(to_str(runtime, value));
}

template <std::string (*kTransform)(std::string_view)>
Value transform(Runtime& runtime, const Value& input, const Args& args) {
  const Bound bound(runtime, "filter", args, {});
  const Value text = soft_str(runtime, input);
  runtime.charge(text.str()->text.size());
  return runtime.str(kTransform(text.str()->text), text.str()->markup);
}

bool starts_word(char32_t c) {
  return utf8::is_space(c) || c == '-' || c == '(' || c == '{' || c == '[' || c == '<';
}

std::string title(std::string_view text) {
  std::string out;
  bool first = true;
  for (size_t pos = 0; pos < text.size();) {
    const size_t begin = pos;
    const bool separator = starts_word(utf8::next(text, pos));
    const std::string_view one = text.substr(begin, pos - begin);
    out += first ? utf8::upper(one) : utf8::lower(one);
    first = separator;
  }
  return out;
}

Value string(Runtime& runtime, const Value& input, const Args& args) {
  const Bound bound(runtime, "string", args, {});
  return soft_str(runtime, input);
}

Value trim(Runtime& runtime, const Value& input, const Args& args) {
  const Bound bound(runtime, "trim", args, {"chars"});
  const Value text = soft_str(runtime, input);
  std::optional<std::string_view> characters;
  if (bound.given(0)) characters = bound.text(0);
  runtime.step(text.str()->text.size() / 64 * (1 + characters.value_or("").size()));
  return runtime.str(std::string(strip_text(text.str()->text, characters)), text.str()->markup);
}

Value replace(Runtime& runtime, const Value& input, const Args& args) {
  const Bound bound(runtime, "replace", args, {"old", "new", "count"}, 2);
  std::string a, b, c;
  return replace_text(runtime, text_of(runtime, input, a), text_of(runtime, bound[0], b),
                      text_of(runtime, bound[1], c), bound.given(2) ? bound.integer(2, -1) : -1);
}

Value join(Runtime& runtime, const Value& input, const Args& args) {
  const Bound bound(runtime, "join", args, {"d", "attribute"});
  const std::string separator = bound.has(0) ? to_str(runtime, bound[0]) : "";
  const Path path(runtime, bound.get(1, None{}));
  Text out(runtime);
  Iterator* items = make_iterator(runtime, input);
  bool first = true;
  for (Value item; items->next(runtime, item); first = false) {
    if (!first) out.append(separator);
    append_str(runtime, out, path(runtime, item));
  }
  return out.value();
}

Value indent(Runtime& runtime, const Value& input, const Args& args) {
  const Bound bound(runtime, "indent", args, {"width", "first", "blank"});
  if (input.undefined()) runtime.fail_undefined(input);
  if (!input.str()) runtime.fail("indent: the input must be str, not {}", type_name(input));
  const bool text_width = bound.has(0) && bound[0].str();
  Text margin(runtime);
  if (text_width) {
    margin.append(bound.text(0));
  } else {
    margin.append(static_cast<size_t>(std::max<int64_t>(bound.integer(0, 4), 0)), ' ');
  }
  runtime.charge(input.str()->text.size());
  const std::string text = input.str()->text + "\n";
  Text out(runtime);
  bool first = true;
  for (const std::string_view line : split_lines(text)) {
    if (!first) out.append("\n");
    if (first ? bound.flag(1) : (bound.flag(2) || !line.empty())) out.append(margin.view());
    out.append(line);
    first = false;
  }
  return out.value(input.str()->markup);
}

Value escape(Runtime& runtime, const Value& input, const Args& args) {
  const Bound bound(runtime, "escape", args, {});
  return escape_html(runtime, input);
}

Value force_escape(Runtime& runtime, const Value& input, const Args& args) {
  const Bound bound(runtime, "forceescape", args, {});
  return escape_html(runtime, runtime.str(to_str(runtime, input)));
}

Value safe(Runtime& runtime, const Value& input, const Args& args) {
  const Bound bound(runtime, "safe", args, {});
  return runtime.str(to_str(runtime, input), true);
}

Value center(Runtime& runtime, const Value& input, const Args& args) {
  const Bound bound(runtime, "center", args, {"width"});
  const Value text = soft_str(runtime, input);
  const int64_t width = bound.integer(0, 80);
  const int64_t missing = std::max<int64_t>(width - text.str()->length, 0);
  const int64_t before = missing / 2 + (missing & width & 1);
  Text out(runtime);
  out.append(static_cast<size_t>(before), ' ');
  out.append(text.str()->text);
  out.append(static_cast<size_t>(missing - before), ' ');
  return out.value(text.str()->markup);
}

Value truncate(Runtime& runtime, const Value& input, const Args& args) {
  const Bound bound(runtime, "truncate", args, {"length", "killwords", "end", "leeway"});
  const auto size = jinja::length(input);
  if (!size) runtime.fail("object of type '{}' has no len()", type_name(input));
  const int64_t length = bound.integer(0, 255);
  const std::string_view end = bound.text(2, "...");
  const int64_t leeway = bound.given(3) ? bound.integer(3, 5) : 5;
  const int64_t kept = length - utf8::count(end);
  if (kept < 0 || leeway < 0) {
    runtime.fail("truncate: length {} and leeway {} leave no room", length, leeway);
  }
  if (*size - leeway <= length) return input;
  if (!input.str()) runtime.fail("truncate: the input must be str, not {}", type_name(input));
  const Str& text = *input.str();
  runtime.charge(text.text.size());
  std::string_view result = std::string_view(text.text).substr(0, utf8::offset(text.text, kept));
  if (!bound.flag(1)) result = result.substr(0, result.rfind(' '));
  return runtime.str(std::string(result) + std::string(end), text.markup);
}

Value wordcount(Runtime& runtime, const Value& input, const Args& args) {
  const Bound bound(runtime, "wordcount", args, {});
  const Value text = soft_str(runtime, input);
  const std::string& s = text.str()->text;
  runtime.step(s.size() / 64);
  int64_t words = 0;
  bool inside = false;
  for (size_t pos = 0; pos < s.size();) {
    const bool word = utf8::is_word(utf8::next(s, pos));
    words += word && !inside;
    inside = word;
  }
  return words;
}

Value format(Runtime& runtime, const Value& input, const Args& args) {
  if (!args.positional.empty() && !args.named.empty()) {
    runtime.fail("format: can't handle positional and keyword arguments at the same time");
  }
  Value values = runtime.tuple(args.positional);
  if (!args.named.empty()) {
    auto* dict = runtime.make<Dict>();
    for (const auto& [name, value] : args.named) {
      insert(runtime, *dict, runtime.str(std::string(name)), value);
    }
    values = dict;
  }
  return format_printf(runtime, *soft_str(runtime, input).str(), values);
}

std::optional<std::string> json_indent(Runtime& runtime, const Bound& bound, size_t i) {
  if (!bound.given(i)) return std::nullopt;
  if (bound[i].str()) return bound[i].str()->text;
  const auto width = static_cast<size_t>(std::max<int64_t>(bound.integer(i, 0), 0));
  runtime.check_text(width);
  runtime.charge(width);
  return std::string(width, ' ');
}

Value tojson(Runtime& runtime, const Value& input, const Args& args) {
  const Bound bound(runtime, "tojson", args, {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonStyle style;
  style.ensure_ascii = bound.flag(0);
  style.indent = json_indent(runtime, bound, 1);
  if (style.indent) style.item_separator = ",";
  if (bound.given(2)) {
    const auto pair = collect(runtime, bound[2]);
    if (pair.size() != 2 || !pair[0].str() || !pair[1].str()) {
      runtime.fail("tojson: separators must be two strings");
    }
    style.item_separator = pair[0].str()->text;
    style.key_separator = pair[1].str()->text;
  }
  style.sort_keys = bound.flag(3);
  return to_json(runtime, input, style);
}

constexpr FilterEntry kFilters[] = {{"capitalize", transform<utf8::capitalize>},
                                    {"center", center},
                                    {"e", escape},
                                    {"escape", escape},
                                    {"forceescape", force_escape},
                                    {"format", format},
                                    {"indent", indent},
                                    {"join", join},
                                    {"lower", transform<utf8::lower>},
                                    {"replace", replace},
                                    {"safe", safe},
                                    {"string", string},
                                    {"title", transform<title>},
                                    {"tojson", tojson},
                                    {"trim", trim},
                                    {"truncate", truncate},
                                    {"upper", transform<utf8::upper>},
                                    {"wordcount", wordcount}};

}  // namespace

Filter find_text_filter(std::string_view name) {
  const FilterEntry* entry = find_entry(kFilters, name);
  return entry ? entry->filter : nullptr;
}

}  // namespace braid::jinja
