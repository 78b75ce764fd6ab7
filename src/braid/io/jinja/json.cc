#include "braid/io/jinja/json.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "braid/io/jinja/number.h"
#include "braid/io/jinja/operators.h"
#include "braid/io/jinja/utf8.h"

namespace braid::jinja {
namespace {

using nlohmann::ordered_json;

Value checked_text(Runtime& runtime, const std::string& text, std::string_view path) {
  if (!utf8::valid(text)) {
    fail(ErrorCode::kInvalidArgument, "{}: the text is not valid UTF-8", path);
  }
  return runtime.str(text);
}

// Writes each kind of value as json.dumps does.
class Writer {
 public:
  Writer(Runtime& runtime, const JsonStyle& style)
      : runtime_(runtime), style_(style), out_(runtime) {}

  Value run(const Value& value) {
    write(value);
    return out_.value();
  }

  void operator()(None) { out_.append("null"); }
  void operator()(bool b) { out_.append(b ? "true" : "false"); }
  void operator()(int64_t i) { out_.append(fmt::format("{}", i)); }
  void operator()(double d) { out_.append(number(d)); }
  void operator()(const Str* s) { text(s->text); }
  void operator()(const Sequence* s) {
    if (!s->indexable()) return refuse(s);
    if (s->items.empty()) return out_.append("[]");
    open('[');
    for (size_t i = 0; i < s->items.size(); ++i) {
      separate(i);
      write(s->items[i]);
    }
    close(']');
  }
  void operator()(const Dict* dict) {
    if (dict->entries.empty()) return out_.append("{}");
    const auto entries = ordered(*dict);
    open('{');
    for (size_t i = 0; i < entries.size(); ++i) {
      separate(i);
      text(key(entries[i].first));
      out_.append(style_.key_separator);
      write(entries[i].second);
    }
    close('}');
  }
  void operator()(const Undefined* u) { refuse(u); }
  void operator()(const Range* r) { refuse(r); }
  void operator()(Iterator* i) { refuse(i); }
  void operator()(Instance* i) { refuse(i); }

 private:
  void write(const Value& value) {
    const Depth depth(runtime_);
    runtime_.step();
    value.visit(*this);
  }

  void refuse(const Value& value) {
    runtime_.fail("Object of type {} is not JSON serializable", type_name(value));
  }

  static std::string number(double d) {
    if (std::isnan(d)) return "NaN";
    if (std::isinf(d)) return d < 0 ? "-Infinity" : "Infinity";
    return float_repr(d);
  }

  std::string key(const Value& value) {
    if (const Str* s = value.str()) return s->text;
    if (value.is_none()) return "null";
    if (const bool* b = value.get_if<bool>()) return *b ? "true" : "false";
    if (const int64_t* i = value.get_if<int64_t>()) return fmt::format("{}", *i);
    if (const double* d = value.get_if<double>()) return number(*d);
    runtime_.fail("keys must be str, int, float, bool or None, not {}", type_name(value));
  }

  std::vector<std::pair<Value, Value>> ordered(const Dict& dict) {
    runtime_.charge(dict.entries.size() * sizeof(dict.entries[0]));
    auto entries = dict.entries;
    if (style_.sort_keys) {
      std::stable_sort(entries.begin(), entries.end(), [&](const auto& a, const auto& b) {
        return less(runtime_, a.first, b.first);
      });
    }
    return entries;
  }

  void open(char bracket) {
    out_.append({&bracket, 1});
    ++level_;
  }
  void separate(size_t i) {
    if (i > 0) out_.append(style_.item_separator);
    new_line();
  }
  void close(char bracket) {
    --level_;
    new_line();
    out_.append({&bracket, 1});
  }
  void new_line() {
    if (!style_.indent) return;
    out_.append("\n");
    for (int i = 0; i < level_; ++i) out_.append(*style_.indent);
  }

  void text(std::string_view s) {
    out_.append("\"");
    size_t plain = 0;
    for (size_t pos = 0; pos < s.size();) {
      const size_t begin = pos;
      const char32_t c = utf8::next(s, pos);
      if (c >= 0x20 && c != '"' && c != '\\' && (c < 0x7F || !style_.ensure_ascii)) continue;
      out_.append(s.substr(plain, begin - plain));
      out_.append(escape(c));
      plain = pos;
    }
    out_.append(s.substr(plain));
    out_.append("\"");
  }

  static std::string escape(char32_t c) {
    switch (c) {
      case '"':
        return "\\\"";
      case '\\':
        return "\\\\";
      case '\n':
        return "\\n";
      case '\r':
        return "\\r";
      case '\t':
        return "\\t";
      case '\b':
        return "\\b";
      case '\f':
        return "\\f";
      default:
        break;
    }
    const auto unit = static_cast<uint32_t>(c);
    if (unit < 0x10000) return fmt::format("\\u{:04x}", unit);
    return fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + ((unit - 0x10000) >> 10),
                       0xDC00 + ((unit - 0x10000) & 0x3FF));
  }

  Runtime& runtime_;
  const JsonStyle& style_;
  Text out_;
  int level_ = 0;
};

}  // namespace

Value from_json(Runtime& runtime, const ordered_json& json, std::string_view path) {
  const Depth depth(runtime);
  runtime.step();
  switch (json.type()) {
    case ordered_json::value_t::boolean:
      return json.get<bool>();
    case ordered_json::value_t::number_integer:
      return json.get<int64_t>();
    case ordered_json::value_t::number_unsigned:
      if (json.get<uint64_t>() > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
        fail(ErrorCode::kInvalidArgument, "{}: the integer {} does not fit in 64 bits", path,
             json.get<uint64_t>());
      }
      return json.get<int64_t>();
    case ordered_json::value_t::number_float:
      return json.get<double>();
    case ordered_json::value_t::string:
      return checked_text(runtime, json.get_ref<const std::string&>(), path);
    case ordered_json::value_t::array: {
      Items items(runtime);
      for (const auto& item : json) items.add(from_json(runtime, item, path));
      return items.list();
    }
    case ordered_json::value_t::object: {
      auto* dict = runtime.make<Dict>();
      runtime.charge(json.size() * sizeof(dict->entries[0]));
      for (const auto& [key, item] : json.items()) {
        dict->entries.emplace_back(checked_text(runtime, key, path),
                                   from_json(runtime, item, path));
      }
      return dict;
    }
    default:
      return None{};
  }
}

Value to_json(Runtime& runtime, const Value& value, const JsonStyle& style) {
  return Writer(runtime, style).run(value);
}

}  // namespace braid::jinja
