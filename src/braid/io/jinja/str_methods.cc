#include <algorithm>
#include <cstring>
#include <limits>

#include "braid/io/jinja/args.h"
#include "braid/io/jinja/iterate.h"
#include "braid/io/jinja/methods.h"
#include "braid/io/jinja/operators.h"
#include "braid/io/jinja/str_format.h"
#include "braid/io/jinja/str_search.h"
#include "braid/io/jinja/table.h"
#include "braid/io/jinja/text.h"
#include "braid/io/jinja/utf8.h"

namespace braid::jinja {
namespace {

Value same_kind(Runtime& runtime, const Value& self, std::string text) {
  return runtime.str(std::move(text), self.str()->markup);
}

// A function of no arguments from text to text.
template <std::string (*kTransform)(std::string_view)>
Value transform(Runtime& runtime, const Value& self, const Args& args) {
  const Bound bound(runtime, "str", args, {});
  runtime.charge(self.str()->text.size());
  return same_kind(runtime, self, kTransform(self.str()->text));
}

// A predicate that holds for a non-empty text if all characters satisfy kHolds.
template <bool (*kHolds)(char32_t)>
Value every(Runtime& runtime, const Value& self, const Args& args) {
  const Bound bound(runtime, "str", args, {});
  const std::string& text = self.str()->text;
  runtime.step(text.size() / 64);
  for (size_t pos = 0; pos < text.size();) {
    if (!kHolds(utf8::next(text, pos))) return false;
  }
  return !text.empty();
}

bool is_alphanumeric(char32_t c) {
  return utf8::is_letter(c) || utf8::is_numeric(c);
}

// islower and isupper: at least a character of the wanted case, and none of the other.
template <bool (*kWanted)(char32_t)>
Value cased(Runtime& runtime, const Value& self, const Args& args) {
  const Bound bound(runtime, "str", args, {});
  return all_cased(self.str()->text, kWanted);
}

Value is_ascii(Runtime& runtime, const Value& self, const Args& args) {
  const Bound bound(runtime, "isascii", args, {});
  return self.str()->ascii();
}

template <bool kLeft, bool kRight>
Value strip(Runtime& runtime, const Value& self, const Args& args) {
  const Bound bound(runtime, "strip", args, {"chars"});
  std::optional<std::string_view> characters;
  if (bound.given(0)) characters = bound.text(0);
  runtime.step(self.str()->text.size() / 64 * (1 + characters.value_or("").size()));
  return same_kind(runtime, self,
                   std::string(strip_text(self.str()->text, characters, kLeft, kRight)));
}

Value pieces(Runtime& runtime, const Value& self, const std::vector<std::string_view>& parts) {
  Items items(runtime);
  for (const std::string_view part : parts) {
    items.add(same_kind(runtime, self, std::string(part)));
  }
  return items.list();
}

template <bool kFromRight>
Value split(Runtime& runtime, const Value& self, const Args& args) {
  const Bound bound(runtime, "split", args, {"sep", "maxsplit"});
  const int64_t limit = bound.integer(1, -1);
  const auto n = limit < 0 ? std::numeric_limits<size_t>::max() : static_cast<size_t>(limit);
  const std::string& text = self.str()->text;
  runtime.charge(text.size() * sizeof(std::string_view));
  if (!bound.given(0)) return pieces(runtime, self, split_space(text, n, kFromRight));
  const std::string_view separator = bound.text(0);
  if (separator.empty()) runtime.fail("empty separator");
  if (kFromRight) runtime.step(text.size() / 64 * separator.size());
  return pieces(runtime, self, split_at(text, separator, n, kFromRight));
}

Value splitlines(Runtime& runtime, const Value& self, const Args& args) {
  const Bound bound(runtime, "splitlines", args, {"keepends"});
  runtime.charge(self.str()->text.size());
  return pieces(runtime, self, split_lines(self.str()->text, bound.flag(0)));
}

template <bool kFromRight>
Value partition(Runtime& runtime, const Value& self, const Args& args) {
  const Bound bound(runtime, "partition", args, {"sep"}, 1);
  const std::string_view text = self.str()->text;
  const std::string_view separator = bound.text(0);
  if (separator.empty()) runtime.fail("empty separator");
  runtime.step(text.size() / 64 * (kFromRight ? separator.size() : 1));
  const size_t at = kFromRight ? text.rfind(separator) : find_text(text, separator);
  const auto part = [&](std::string_view piece) {
    return same_kind(runtime, self, std::string(piece));
  };
  if (at == std::string_view::npos) {
    if (kFromRight) return runtime.tuple({part(""), part(""), self});
    return runtime.tuple({self, part(""), part("")});
  }
  return runtime.tuple(
      {part(text.substr(0, at)), part(separator), part(text.substr(at + separator.size()))});
}

template <bool kAtStart>
Value matches_end(Runtime& runtime, const Value& self, const Args& args) {
  const Bound bound(runtime, kAtStart ? "startswith" : "endswith", args, {"affix", "start", "end"},
                    1);
  const auto window = text_window(runtime, *self.str(), bound);
  const auto one = [&](const Value& affix) {
    if (affix.undefined()) runtime.fail_undefined(affix);
    if (!affix.str()) runtime.fail("the affix must be str, not {}", type_name(affix));
    if (!window) return false;
    return kAtStart ? window->text.starts_with(affix.str()->text)
                    : window->text.ends_with(affix.str()->text);
  };
  const Sequence* several = bound[0].sequence();
  if (!several || several->kind != Sequence::Kind::tuple) return one(bound[0]);
  return std::any_of(several->items.begin(), several->items.end(), one);
}

// find, rfind, index, rindex: the last two fail where the text is not found.
template <bool kFromRight, bool kMust>
Value locate(Runtime& runtime, const Value& self, const Args& args) {
  const Bound bound(runtime, "find", args, {"sub", "start", "end"}, 1);
  const std::string_view sub = bound.text(0);
  const auto window = text_window(runtime, *self.str(), bound);
  size_t at = std::string_view::npos;
  if (window) {
    runtime.step(window->text.size() / 64 * (kFromRight ? sub.size() + 1 : 1));
    at = kFromRight ? window->text.rfind(sub) : find_text(window->text, sub);
  }
  if (at != std::string_view::npos) {
    return window->start + utf8::count(window->text.substr(0, at));
  }
  if (kMust) runtime.fail("substring not found");
  return int64_t{-1};
}

Value count(Runtime& runtime, const Value& self, const Args& args) {
  const Bound bound(runtime, "count", args, {"sub", "start", "end"}, 1);
  const std::string_view sub = bound.text(0);
  const auto window = text_window(runtime, *self.str(), bound);
  if (!window) return int64_t{0};
  runtime.step(window->text.size() / 64);
  return count_text(window->text, sub);
}

Value replace(Runtime& runtime, const Value& self, const Args& args) {
  const Bound bound(runtime, "replace", args, {"old", "new", "count"}, 2);
  bound.text(0);
  bound.text(1);
  const bool markup = self.str()->markup;
  const auto part = [&](size_t i) { return markup ? escape_html(runtime, bound[i]) : bound[i]; };
  return replace_text(runtime, self.str()->text, part(0).str()->text, part(1).str()->text,
                      bound.integer(2, -1), markup);
}

Value join(Runtime& runtime, const Value& self, const Args& args) {
  const Bound bound(runtime, "join", args, {"iterable"}, 1);
  Text out(runtime);
  Iterator* items = make_iterator(runtime, bound[0]);
  bool first = true;
  for (Value item; items->next(runtime, item); first = false) {
    if (self.str()->markup) item = escape_html(runtime, item);
    if (!item.str()) runtime.fail("join(): expected str, {} found", type_name(item));
    if (!first) out.append(self.str()->text);
    out.append(item.str()->text);
  }
  return out.value(self.str()->markup);
}

template <bool kPrefix>
Value remove_affix(Runtime& runtime, const Value& self, const Args& args) {
  const Bound bound(runtime, "removeprefix", args, {"affix"}, 1);
  std::string_view text = self.str()->text;
  const std::string_view affix = bound.text(0);
  if (kPrefix && text.starts_with(affix)) text.remove_prefix(affix.size());
  if (!kPrefix && text.ends_with(affix)) text.remove_suffix(affix.size());
  return same_kind(runtime, self, std::string(text));
}

enum class Side { left, right, both };

template <Side kSide>
Value justify(Runtime& runtime, const Value& self, const Args& args) {
  const Bound bound(runtime, "justify", args, {"width", "fillchar"}, 1);
  const std::string fill(bound.text(1, " "));
  if (utf8::count(fill) != 1) runtime.fail("the fill character must be exactly one character long");
  const int64_t missing = std::max<int64_t>(bound.integer(0, 0) - self.str()->length, 0);
  const int64_t width = bound.integer(0, 0);
  const int64_t before = kSide == Side::left    ? 0
                         : kSide == Side::right ? missing
                                                : missing / 2 + (missing & width & 1);
  Text out(runtime);
  runtime.check_text(static_cast<size_t>(missing));
  for (int64_t i = 0; i < before; ++i) out.append(fill);
  out.append(self.str()->text);
  for (int64_t i = before; i < missing; ++i) out.append(fill);
  return out.value(self.str()->markup);
}

Value zfill(Runtime& runtime, const Value& self, const Args& args) {
  const Bound bound(runtime, "zfill", args, {"width"}, 1);
  const std::string_view text = self.str()->text;
  const bool sign = text.starts_with('-') || text.starts_with('+');
  Text out(runtime);
  out.append(text.substr(0, sign));
  out.append(static_cast<size_t>(std::max<int64_t>(bound.integer(0, 0) - self.str()->length, 0)),
             '0');
  out.append(text.substr(sign));
  return out.value(self.str()->markup);
}

Value format(Runtime& runtime, const Value& self, const Args& args) {
  return format_braces(runtime, *self.str(), args);
}

Value unsupported(Runtime& runtime, const Value&, const Args&) {
  runtime.fail_as(ErrorCode::kUnsupported, "this method of str is not supported");
}

constexpr MethodEntry kStrMethods[] = {{"capitalize", transform<utf8::capitalize>},
                                       {"casefold", transform<utf8::lower>},
                                       {"center", justify<Side::both>},
                                       {"count", count},
                                       {"encode", unsupported},
                                       {"endswith", matches_end<false>},
                                       {"expandtabs", unsupported},
                                       {"find", locate<false, false>},
                                       {"format", format},
                                       {"format_map", unsupported},
                                       {"index", locate<false, true>},
                                       {"isalnum", every<is_alphanumeric>},
                                       {"isalpha", every<utf8::is_letter>},
                                       {"isascii", is_ascii},
                                       {"isdecimal", every<utf8::is_decimal>},
                                       {"isdigit", every<utf8::is_digit>},
                                       {"isidentifier", unsupported},
                                       {"islower", cased<utf8::is_lower>},
                                       {"isnumeric", every<utf8::is_numeric>},
                                       {"isprintable", unsupported},
                                       {"isspace", every<utf8::is_space>},
                                       {"istitle", unsupported},
                                       {"isupper", cased<utf8::is_upper>},
                                       {"join", join},
                                       {"ljust", justify<Side::left>},
                                       {"lower", transform<utf8::lower>},
                                       {"lstrip", strip<true, false>},
                                       {"maketrans", unsupported},
                                       {"partition", partition<false>},
                                       {"removeprefix", remove_affix<true>},
                                       {"removesuffix", remove_affix<false>},
                                       {"replace", replace},
                                       {"rfind", locate<true, false>},
                                       {"rindex", locate<true, true>},
                                       {"rjust", justify<Side::right>},
                                       {"rpartition", partition<true>},
                                       {"rsplit", split<true>},
                                       {"rstrip", strip<false, true>},
                                       {"split", split<false>},
                                       {"splitlines", splitlines},
                                       {"startswith", matches_end<true>},
                                       {"strip", strip<true, true>},
                                       {"swapcase", unsupported},
                                       {"title", transform<title_case>},
                                       {"translate", unsupported},
                                       {"upper", transform<utf8::upper>},
                                       {"zfill", zfill}};

}  // namespace

const MethodEntry* find_str_method(std::string_view name) {
  return find_entry(kStrMethods, name);
}

}  // namespace braid::jinja
