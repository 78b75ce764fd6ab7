#include "braid/io/tokenizer_normalize.h"

#include <algorithm>

#include "braid/base/error.h"
#include "braid/io/tokenizer_utf8.h"

namespace braid {
namespace {

bool any_own(std::string_view own) {
  return own.find('\1') != own.npos;
}

// An ASCII character composes with nothing before: NFC over a text is NFC over its parts, each an
// ASCII character and its followers.
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

// Text built from another text's parts, with their sources' marks.
class Rewritten {
 public:
  explicit Rewritten(const MarkedText& from) : from_(from) {}

  void keep(size_t begin, size_t end) {
    out_.text.append(from_.text, begin, end - begin);
    if (!from_.own.empty()) out_.own.append(from_.own, begin, end - begin);
  }
  // `to` in place of from[begin, end).
  void put(size_t begin, size_t end, std::string_view to) {
    out_.text += to;
    if (from_.own.empty()) return;
    const bool own = any_own(std::string_view(from_.own).substr(begin, end - begin));
    out_.own.append(to.size(), own ? '\1' : '\0');
  }
  MarkedText& text() { return out_; }

 private:
  const MarkedText& from_;
  MarkedText out_;
};

void replace(MarkedText& marked, const std::string& from, const std::string& to) {
  Rewritten out(marked);
  size_t done = 0;
  for (size_t at; (at = marked.text.find(from, done)) != std::string::npos;
       done = at + from.size()) {
    out.keep(done, at);
    out.put(at, at + from.size(), to);
  }
  out.keep(done, marked.text.size());
  marked = std::move(out.text());
}

void replace_matches(MarkedText& marked, const Regex& regex, const std::string& to) {
  Rewritten out(marked);
  std::vector<RegexCut> cuts;
  regex.cut(marked.text, cuts);
  for (const RegexCut& cut : cuts) {
    const auto begin = static_cast<size_t>(cut.text.data() - marked.text.data());
    const size_t end = begin + cut.text.size();
    cut.match ? out.put(begin, end, to) : out.keep(begin, end);
  }
  marked = std::move(out.text());
}

void lowercase(MarkedText& marked) {
  Rewritten out(marked);
  std::string lower;
  for (size_t at = 0; at < marked.text.size();) {
    const Utf8Char c = decode_utf8(marked.text, at);
    if (c.status == Utf8Status::kValid) {
      lower.clear();
      append_lower(c.code, lower);
      out.put(at, at + c.size, lower);
    } else {
      out.keep(at, at + c.size);
    }
    at += c.size;
  }
  marked = std::move(out.text());
}

void map_characters(MarkedText& marked, const CharMap& map) {
  Rewritten out(marked);
  const std::string_view text = marked.text;
  const auto put = [&](size_t begin, size_t end) {
    const auto mapped = map.find(text.substr(begin, end - begin));
    if (mapped) out.put(begin, end, *mapped);
    return mapped.has_value();
  };
  // Clusters that are longer than this are mapped character by character, as in the original.
  constexpr size_t kShortCluster = 6;
  for (size_t at = 0; at < text.size();) {
    const size_t end = grapheme_end(text, at);
    if (end - at < kShortCluster && put(at, end)) {
      at = end;
      continue;
    }
    while (at < end) {
      const size_t size = decode_utf8(text, at).size;
      if (!put(at, at + size)) out.keep(at, at + size);
      at += size;
    }
  }
  marked = std::move(out.text());
}

// The text without white space at start and end, as asked.
void strip(MarkedText& marked, bool left, bool right) {
  const std::string_view text = marked.text;
  size_t begin = 0, end = text.size();
  if (left) {
    while (begin < end) {
      const ClassedChar c = classed_char(text, begin);
      if (c.kind != CharClass::kSpace) break;
      begin += c.size;
    }
  }
  if (right) {
    end = begin;
    for (size_t at = begin; at < text.size();) {
      const ClassedChar c = classed_char(text, at);
      at += c.size;
      if (c.kind != CharClass::kSpace) end = at;
    }
  }
  Rewritten out(marked);
  out.keep(begin, end);
  marked = std::move(out.text());
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

Normalizer::Normalizer(const std::vector<NormalizeStep>& steps) {
  for (const NormalizeStep& step : steps) {
    if (step.kind == NormalizeStep::Kind::kReplace && step.from.empty()) {
      fail(ErrorCode::kMalformed, "a normalizer replaces the empty text");
    }
    Stage& stage = stages_.emplace_back(Stage{step, std::nullopt, std::nullopt});
    if (step.kind == NormalizeStep::Kind::kReplaceMatches) stage.regex.emplace(step.from);
    if (step.kind == NormalizeStep::Kind::kCharMap) stage.map.emplace(step.from);
  }
}

void Normalizer::apply(MarkedText& marked) const {
  for (const auto& [step, regex, map] : stages_) {
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
      case NormalizeStep::Kind::kReplaceMatches:
        replace_matches(marked, *regex, step.to);
        break;
      case NormalizeStep::Kind::kLowercase:
        lowercase(marked);
        break;
      case NormalizeStep::Kind::kStripLeft:
        strip(marked, true, false);
        break;
      case NormalizeStep::Kind::kStripRight:
        strip(marked, false, true);
        break;
      case NormalizeStep::Kind::kCharMap:
        map_characters(marked, *map);
        break;
    }
  }
}

}  // namespace braid
