#include "braid/io/tokenizer_normalize.h"

#include <algorithm>

#include "braid/io/tokenizer_utf8.h"

namespace braid {
namespace {

bool any_own(std::string_view own) {
  return own.find('\1') != own.npos;
}

// A character of ASCII composes with nothing before it: NFC of a text is that of its parts, each
// an ASCII character and what follows.
void nfc(MarkedText& marked) {
  if (marked.own.empty()) {
    marked.text = to_nfc(marked.text);
    return;
  }
  MarkedText out;
  const std::string_view text = marked.text;
  for (size_t at = 0; at < text.size();) {
    size_t end = at + 1;
    while (end < text.size() && static_cast<unsigned char>(text[end]) >= 0x80) ++end;
    const std::string_view part = text.substr(at, end - at);
    const std::string_view own = std::string_view(marked.own).substr(at, end - at);
    const std::string composed = to_nfc(part);
    if (composed == part) {
      out.own += own;
    } else {
      out.own.append(composed.size(), any_own(own) ? '\1' : '\0');
    }
    out.text += composed;
    at = end;
  }
  marked = std::move(out);
}

void replace(MarkedText& marked, const std::string& from, const std::string& to) {
  MarkedText out;
  size_t done = 0;
  const auto keep = [&](size_t end) {
    out.text.append(marked.text, done, end - done);
    if (!marked.own.empty()) out.own.append(marked.own, done, end - done);
  };
  for (size_t at; (at = marked.text.find(from, done)) != std::string::npos;
       done = at + from.size()) {
    keep(at);
    out.text += to;
    if (!marked.own.empty()) {
      const bool own = any_own(std::string_view(marked.own).substr(at, from.size()));
      out.own.append(to.size(), own ? '\1' : '\0');
    }
  }
  keep(marked.text.size());
  marked = std::move(out);
}

}  // namespace

MarkedText unmark(std::string_view text, std::string_view mark) {
  MarkedText out;
  size_t last = 0;  // where the character before starts
  for (size_t at = 0; at < text.size();) {
    if (text.substr(at).starts_with(mark)) {
      std::fill(out.own.begin() + static_cast<std::ptrdiff_t>(last), out.own.end(), '\1');
      at += mark.size();
      continue;
    }
    const size_t size = decode_utf8(text, at).size;
    last = out.text.size();
    out.text.append(text, at, size);
    out.own.append(size, '\0');
    at += size;
  }
  if (!any_own(out.own)) out.own.clear();
  return out;
}

std::string mark_own(std::string_view text, std::string_view own, std::string_view mark) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const size_t size = decode_utf8(text, at).size;
    out.append(text, at, size);
    if (own[at] != '\0') out += mark;
    at += size;
  }
  return out;
}

void normalize(MarkedText& marked, const std::vector<NormalizeStep>& steps) {
  for (const NormalizeStep& step : steps) {
    switch (step.kind) {
      case NormalizeStep::Kind::kNfc:
        nfc(marked);
        break;
      case NormalizeStep::Kind::kPrepend:
        if (marked.text.empty()) break;
        marked.text.insert(0, step.to);
        if (!marked.own.empty()) marked.own.insert(0, step.to.size(), '\0');
        break;
      case NormalizeStep::Kind::kReplace:
        replace(marked, step.from, step.to);
        break;
    }
  }
}

}  // namespace braid
