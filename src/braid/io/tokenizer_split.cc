#include "braid/io/tokenizer_split.h"

#include <algorithm>
#include <string>

#include "braid/base/error.h"
#include "braid/io/tokenizer_utf8.h"

namespace braid {
namespace {

using enum CharClass;

size_t run_of(CharClass kind, std::string_view text, size_t at) {
  while (at < text.size()) {
    const ClassedChar c = classed_char(text, at);
    if (c.kind != kind) break;
    at += c.size;
  }
  return at;
}

bool is_newline(char c) {
  return c == '\r' || c == '\n';
}

// Length of 's 't 're 've 'm 'll 'd at the apostrophe `at`; 0 without a contraction.
size_t contraction(std::string_view text, size_t at, bool any_case) {
  const auto letter = [&](size_t i) -> char {
    if (at + i >= text.size()) return 0;
    const char c = text[at + i];
    return any_case && c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
  };
  switch (letter(1)) {
    case 's':
    case 't':
    case 'm':
    case 'd':
      return 2;
    case 'r':
    case 'v':
      return letter(2) == 'e' ? 3 : 0;
    case 'l':
      return letter(2) == 'l' ? 3 : 0;
    default:
      // The long s folds to s.
      return any_case && text.substr(at + 1).starts_with("\u017f") ? 3 : 0;
  }
}

// \s+(?!\S)|\s+ over white space from `at`: all at the end of the text, otherwise all but the last
// character, which belongs to the next word; never nothing.
size_t space_end(std::string_view text, size_t at) {
  size_t last = at;
  size_t end = at;
  while (end < text.size()) {
    const ClassedChar c = classed_char(text, end);
    if (c.kind != kSpace) return last > at ? last : end;
    last = end;
    end += c.size;
  }
  return end;
}

size_t gpt2_end(std::string_view text, size_t at) {
  if (text[at] == '\'') {
    if (const size_t n = contraction(text, at, false)) return at + n;
  }
  ClassedChar c = classed_char(text, at);
  size_t word = at;
  if (text[at] == ' ' && at + 1 < text.size()) {
    word = at + 1;
    c = classed_char(text, word);
  }
  if (c.kind == kSpace) return space_end(text, at);
  return run_of(c.kind, text, word + c.size);
}

size_t llama3_end(std::string_view text, size_t at, int digits) {
  if (text[at] == '\'') {
    if (const size_t n = contraction(text, at, true)) return at + n;
  }
  const ClassedChar c = classed_char(text, at);
  const size_t next = at + c.size;
  if (c.kind == kLetter) return run_of(kLetter, text, next);
  if (c.kind == kNumber) {
    size_t end = next;
    while (--digits > 0 && end < text.size()) {
      const ClassedChar d = classed_char(text, end);
      if (d.kind != kNumber) break;
      end += d.size;
    }
    return end;
  }
  ClassedChar d{kSpace, 0};  // the end of the text
  if (next < text.size()) d = classed_char(text, next);
  if (d.kind == kLetter && !is_newline(text[at])) return run_of(kLetter, text, next);
  if (c.kind == kOther || (text[at] == ' ' && d.kind == kOther)) {
    size_t end = run_of(kOther, text, next);
    while (end < text.size() && is_newline(text[end])) ++end;
    return end;
  }
  // White space: up to its last newline, if any.
  size_t newline = 0;
  size_t end = at;
  while (end < text.size()) {
    const ClassedChar s = classed_char(text, end);
    if (s.kind != kSpace) break;
    end += s.size;
    if (is_newline(text[end - 1])) newline = end;
  }
  return newline > 0 ? newline : space_end(text, at);
}

size_t digits_end(std::string_view text, size_t at, bool runs) {
  const ClassedChar c = classed_char(text, at);
  size_t end = at + c.size;
  const bool number = c.kind == kNumber;
  while ((!number || runs) && end < text.size()) {
    const ClassedChar d = classed_char(text, end);
    if ((d.kind == kNumber) != number) break;
    end += d.size;
  }
  return end;
}

}  // namespace

size_t piece_end(SplitStep::Kind kind, std::string_view text, size_t at) {
  switch (kind) {
    case SplitStep::Kind::kGpt2:
      return gpt2_end(text, at);
    case SplitStep::Kind::kLlama3:
      return llama3_end(text, at, 3);
    case SplitStep::Kind::kQwen2:
      return llama3_end(text, at, 1);
    case SplitStep::Kind::kDigits:
      return digits_end(text, at, false);
    case SplitStep::Kind::kDigitRuns:
      return digits_end(text, at, true);
    default:
      BRAID_CHECK(false, "{}", static_cast<int>(kind));
      return text.size();
  }
}

std::string_view pattern_of(SplitStep::Kind kind) {
  switch (kind) {
    case SplitStep::Kind::kGpt2:
      return R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
    case SplitStep::Kind::kLlama3:
      return R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3})"
             R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
    case SplitStep::Kind::kQwen2:
      return R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N})"
             R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
    default:
      return {};
  }
}

namespace {

// Joins neighbours as `behavior` says; none is dropped.
std::vector<RegexCut> merged(const std::vector<RegexCut>& cuts, SplitStep::Behavior behavior) {
  using enum SplitStep::Behavior;
  std::vector<RegexCut> out;
  const bool backward = behavior == kMergedWithNext;
  bool before = false;  // the last joined text ends with a match
  for (size_t i = 0; i < cuts.size(); ++i) {
    const RegexCut& cut = cuts[backward ? cuts.size() - 1 - i : i];
    const bool join = behavior == kContiguous ? cut.match == before : cut.match && !before;
    before = cut.match;
    if (!join || out.empty()) {
      out.push_back({cut.text, false});
      continue;
    }
    const std::string_view first = backward ? cut.text : out.back().text;
    out.back().text = {first.data(), out.back().text.size() + cut.text.size()};
  }
  if (backward) std::ranges::reverse(out);
  return out;
}

}  // namespace

void PreTokenizer::run_regex(const Stage& stage, std::string_view text, const Word& next) {
  using enum SplitStep::Behavior;
  const SplitStep& step = stage.step;
  std::vector<RegexCut> cuts;
  stage.regex->cut(text, cuts);
  if (step.invert) {
    for (RegexCut& cut : cuts) cut.match = !cut.match;
  }
  if (step.behavior != kIsolated && step.behavior != kRemoved) cuts = merged(cuts, step.behavior);
  for (const RegexCut& cut : cuts) {
    if (!cut.text.empty() && !(step.behavior == kRemoved && cut.match)) next(cut.text);
  }
}

PreTokenizer::PreTokenizer(const std::vector<SplitStep>& steps) {
  for (const SplitStep& step : steps) {
    Stage& stage = stages_.emplace_back(Stage{step, std::nullopt});
    if (step.kind == SplitStep::Kind::kRegex) stage.regex.emplace(step.text);
  }
}

void PreTokenizer::run(size_t stage, std::string_view text, bool first, const Word& word) const {
  if (stage == stages_.size()) {
    word(text);
    return;
  }
  const SplitStep& step = stages_[stage].step;
  bool at_start = first;
  const auto next = [&](std::string_view piece) {
    run(stage + 1, piece, at_start, word);
    at_start = false;
  };
  switch (step.kind) {
    case SplitStep::Kind::kRegex:
      run_regex(stages_[stage], text, next);
      return;
    case SplitStep::Kind::kPrefixSpace:
      text.starts_with(' ') ? next(text) : next(" " + std::string(text));
      return;
    case SplitStep::Kind::kMetaspace: {
      std::string marked;
      const bool start = step.prepend == SplitStep::Prepend::kAlways ||
                         (step.prepend == SplitStep::Prepend::kFirst && first);
      if (start && !text.starts_with(' ') && !text.starts_with(step.text)) marked = step.text;
      for (const char c : text) c == ' ' ? marked.append(step.text) : marked.append(1, c);
      const std::string_view all = marked;
      for (size_t at = 0; at < all.size();) {
        const size_t from = at + (all.substr(at).starts_with(step.text) ? step.text.size() : 0);
        const size_t end =
            step.split ? std::min(all.find(step.text, from), all.size()) : all.size();
        next(all.substr(at, end - at));
        at = end;
      }
      return;
    }
    case SplitStep::Kind::kWhitespace:
      for (size_t at = 0; at < text.size();) {
        const size_t begin = at;
        ClassedChar c = classed_char(text, at);
        while (c.kind != kSpace && (at += c.size) < text.size()) c = classed_char(text, at);
        if (at > begin) next(text.substr(begin, at - begin));
        if (at < text.size()) at += c.size;
      }
      return;
    default:
      for (size_t at = 0; at < text.size();) {
        const size_t end = piece_end(step.kind, text, at);
        next(text.substr(at, end - at));
        at = end;
      }
  }
}

}  // namespace braid
