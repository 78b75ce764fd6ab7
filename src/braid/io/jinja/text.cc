#include "braid/io/jinja/text.h"

#include "braid/io/jinja/namespace.h"
#include "braid/io/jinja/number.h"
#include "braid/io/jinja/utf8.h"

namespace braid::jinja {
namespace {

void append_escaped(std::string& out, char32_t c, char quote_mark) {
  if (c == static_cast<char32_t>(quote_mark) || c == '\\') {
    out += '\\';
    out += static_cast<char>(c);
  } else if (c == '\n') {
    out += "\\n";
  } else if (c == '\r') {
    out += "\\r";
  } else if (c == '\t') {
    out += "\\t";
  } else if (utf8::is_printable(c)) {
    utf8::append(out, c);
  } else if (c < 0x100) {
    out += fmt::format("\\x{:02x}", static_cast<uint32_t>(c));
  } else if (c < 0x10000) {
    out += fmt::format("\\u{:04x}", static_cast<uint32_t>(c));
  } else {
    out += fmt::format("\\U{:08x}", static_cast<uint32_t>(c));
  }
}

// Writes each kind of value as repr() does.
struct Repr {
  Runtime& runtime;
  Text& out;

  void operator()(None) const { out.append("None"); }
  void operator()(bool b) const { out.append(b ? "True" : "False"); }
  void operator()(int64_t i) const { out.append(fmt::format("{}", i)); }
  void operator()(double d) const { out.append(float_repr(d)); }
  void operator()(const Undefined*) const { out.append("Undefined"); }
  void operator()(const Str* s) const {
    runtime.charge(s->text.size());
    const std::string quoted = quote(s->text);
    out.append(s->markup ? "Markup(" + quoted + ")" : quoted);
  }
  void operator()(const Range* r) const {
    out.append(r->step == 1 ? fmt::format("range({}, {})", r->begin, r->end)
                            : fmt::format("range({}, {}, {})", r->begin, r->end, r->step));
  }
  void operator()(Iterator*) const { out.append("<generator object>"); }
  void operator()(const Dict* dict) const { entries(*dict); }
  void operator()(Instance* instance) const {
    if (auto* space = dynamic_cast<Namespace*>(instance)) {
      out.append("<Namespace ");
      entries(*space->attributes);
      out.append(">");
    } else {
      out.append(fmt::format("<{}>", instance->type_name()));
    }
  }
  void operator()(const Sequence* sequence) const {
    const bool tuple = sequence->kind == Sequence::Kind::tuple;
    const bool view = !sequence->indexable();
    if (view) out.append(fmt::format("{}(", type_name(sequence)));
    out.append(tuple ? "(" : "[");
    for (size_t i = 0; i < sequence->items.size(); ++i) {
      if (i > 0) out.append(", ");
      append_repr(runtime, out, sequence->items[i]);
    }
    if (tuple && sequence->items.size() == 1) out.append(",");
    out.append(tuple ? ")" : "]");
    if (view) out.append(")");
  }

  void entries(const Dict& dict) const {
    out.append("{");
    for (size_t i = 0; i < dict.entries.size(); ++i) {
      if (i > 0) out.append(", ");
      append_repr(runtime, out, dict.entries[i].first);
      out.append(": ");
      append_repr(runtime, out, dict.entries[i].second);
    }
    out.append("}");
  }
};

}  // namespace

std::string quote(std::string_view text) {
  const bool single = text.find('\'') != std::string_view::npos;
  const bool twice = text.find('"') != std::string_view::npos;
  const char mark = single && !twice ? '"' : '\'';
  std::string out(1, mark);
  for (size_t pos = 0; pos < text.size();) append_escaped(out, utf8::next(text, pos), mark);
  return out + mark;
}

void append_repr(Runtime& runtime, Text& out, const Value& value) {
  const Depth depth(runtime);
  runtime.step();
  value.visit(Repr{runtime, out});
}

void append_str(Runtime& runtime, Text& out, const Value& value) {
  if (const Str* s = value.str()) {
    out.append(s->text);
  } else if (!value.undefined()) {
    append_repr(runtime, out, value);
  }
}

std::string to_str(Runtime& runtime, const Value& value) {
  Text out(runtime);
  append_str(runtime, out, value);
  return out.take();
}

std::string to_repr(Runtime& runtime, const Value& value) {
  Text out(runtime);
  append_repr(runtime, out, value);
  return out.take();
}

std::string_view text_of(Runtime& runtime, const Value& value, std::string& storage) {
  if (const Str* s = value.str()) return s->text;
  storage = to_str(runtime, value);
  return storage;
}

Value escape_html(Runtime& runtime, const Value& value) {
  if (value.str() && value.str()->markup) return value;
  std::string storage;
  Text out(runtime);
  for (char c : text_of(runtime, value, storage)) {
    switch (c) {
      case '&':
        out.append("&amp;");
        break;
      case '<':
        out.append("&lt;");
        break;
      case '>':
        out.append("&gt;");
        break;
      case '"':
        out.append("&#34;");
        break;
      case '\'':
        out.append("&#39;");
        break;
      default:
        out.append({&c, 1});
    }
  }
  return out.value(true);
}

}  // namespace braid::jinja
