#include "braid/io/tokenizer_json_steps.h"

#include <algorithm>
#include <string>

#include "braid/base/error.h"
#include "braid/io/base64.h"
#include "braid/io/tokenizer_split.h"

namespace braid {
namespace {

// {"String": text} of a pattern.
const std::string& string_pattern(const JsonNode& pattern) {
  if (pattern["String"].is_null()) pattern["Regex"].unsupported("a String pattern");
  return pattern["String"].text();
}

SplitStep read_split(const JsonNode& node) {
  using enum SplitStep::Behavior;
  static constexpr std::pair<std::string_view, SplitStep::Behavior> kBehaviors[] = {
      {"Isolated", kIsolated},
      {"Removed", kRemoved},
      {"MergedWithPrevious", kMergedWithPrevious},
      {"MergedWithNext", kMergedWithNext},
      {"Contiguous", kContiguous}};
  const auto* behavior =
      std::ranges::find(kBehaviors, std::string_view(node["behavior"].text()),
                        &std::pair<std::string_view, SplitStep::Behavior>::first);
  if (behavior == std::end(kBehaviors)) {
    node["behavior"].unsupported(
        "Contiguous, Isolated, MergedWithNext, MergedWithPrevious, Removed");
  }
  SplitStep step{.kind = SplitStep::Kind::kRegex,
                 .behavior = behavior->second,
                 .invert = node["invert"].boolean(false)};
  const JsonNode pattern = node["pattern"];
  if (pattern["Regex"].is_null()) {
    // No character of a string is special behind a backslash.
    for (const char c : string_pattern(pattern)) {
      if (static_cast<unsigned char>(c) < 128 && !std::isalnum(static_cast<unsigned char>(c))) {
        step.text += '\\';
      }
      step.text += c;
    }
    return step;
  }
  const std::string& regex = pattern["Regex"].text();
  for (const auto kind :
       {SplitStep::Kind::kGpt2, SplitStep::Kind::kLlama3, SplitStep::Kind::kQwen2}) {
    // These match every character: dropping their gaps drops nothing.
    const bool isolated = step.behavior == kIsolated || (step.behavior == kRemoved && step.invert);
    if (isolated && regex == pattern_of(kind)) return {.kind = kind};
  }
  step.text = regex;
  return step;
}

SplitStep read_metaspace(const JsonNode& node) {
  SplitStep step{.kind = SplitStep::Kind::kMetaspace, .text = node["replacement"].text()};
  if (step.text.empty()) node["replacement"].expected("a character");
  const std::string scheme =
      node["prepend_scheme"].text(node["add_prefix_space"].boolean(true) ? "always" : "never");
  if (scheme == "always") {
    step.prepend = SplitStep::Prepend::kAlways;
  } else if (scheme == "first") {
    step.prepend = SplitStep::Prepend::kFirst;
  } else if (scheme != "never") {
    node["prepend_scheme"].unsupported("always, first, never");
  }
  step.split = node["split"].boolean(true);
  return step;
}

}  // namespace

void read_normalizer(const JsonNode& node, std::vector<NormalizeStep>& steps) {
  if (node.is_null()) return;
  const std::string& type = node["type"].text();
  if (type == "Sequence") {
    const JsonNode parts = node["normalizers"];
    for (size_t i = 0; i < parts.array_size(); ++i) read_normalizer(parts.at(i), steps);
  } else if (type == "NFC") {
    steps.push_back({NormalizeStep::Kind::kNfc, {}, {}});
  } else if (type == "Prepend") {
    steps.push_back({NormalizeStep::Kind::kPrepend, {}, node["prepend"].text()});
  } else if (type == "Replace") {
    const JsonNode regex = node["pattern"]["Regex"];
    if (regex.is_null()) {
      steps.push_back(
          {NormalizeStep::Kind::kReplace, string_pattern(node["pattern"]), node["content"].text()});
    } else {
      steps.push_back({NormalizeStep::Kind::kReplaceMatches, regex.text(), node["content"].text()});
    }
  } else if (type == "Lowercase") {
    steps.push_back({NormalizeStep::Kind::kLowercase, {}, {}});
  } else if (type == "Strip") {
    if (node["strip_left"].boolean(true))
      steps.push_back({NormalizeStep::Kind::kStripLeft, {}, {}});
    if (node["strip_right"].boolean(true)) {
      steps.push_back({NormalizeStep::Kind::kStripRight, {}, {}});
    }
  } else if (type == "Precompiled") {
    const auto map = decode_base64(node["precompiled_charsmap"].text());
    if (!map) node["precompiled_charsmap"].expected("base64");
    if (!map->empty()) steps.push_back({NormalizeStep::Kind::kCharMap, *map, {}});
  } else {
    node["type"].unsupported("Lowercase, NFC, Precompiled, Prepend, Replace, Sequence, Strip");
  }
}

void read_pre_tokenizer(const JsonNode& node, TokenizerSpec& spec) {
  if (node.is_null()) return;
  const std::string& type = node["type"].text();
  if (spec.byte_level) {
    fail(ErrorCode::kUnsupported, "{} comes after ByteLevel, which must be last", node.place());
  }
  if (type == "Sequence") {
    const JsonNode parts = node["pretokenizers"];
    for (size_t i = 0; i < parts.array_size(); ++i) read_pre_tokenizer(parts.at(i), spec);
  } else if (type == "Split") {
    spec.split.push_back(read_split(node));
  } else if (type == "Digits") {
    spec.split.push_back({.kind = node["individual_digits"].boolean(false)
                                      ? SplitStep::Kind::kDigits
                                      : SplitStep::Kind::kDigitRuns});
  } else if (type == "Metaspace") {
    spec.split.push_back(read_metaspace(node));
  } else if (type == "WhitespaceSplit") {
    spec.split.push_back({.kind = SplitStep::Kind::kWhitespace});
  } else if (type == "ByteLevel") {
    spec.byte_level = true;
    if (node["add_prefix_space"].boolean(true)) {
      spec.split.push_back({.kind = SplitStep::Kind::kPrefixSpace});
    }
    if (node["use_regex"].boolean(true)) spec.split.push_back({.kind = SplitStep::Kind::kGpt2});
  } else {
    node["type"].unsupported("ByteLevel, Digits, Metaspace, Sequence, Split, WhitespaceSplit");
  }
}

void read_decoder(const JsonNode& node, DecodeRule& rule, bool& fused) {
  const std::string& type = node["type"].text();
  if (type == "Sequence") {
    const JsonNode parts = node["decoders"];
    for (size_t i = 0; i < parts.array_size(); ++i) read_decoder(parts.at(i), rule, fused);
  } else if (type == "ByteLevel") {
    rule.byte_level = true;
  } else if (type == "ByteFallback") {
    rule.byte_fallback = true;
  } else if (type == "Fuse") {
    fused = true;
  } else if (type == "Replace") {
    if (node["content"].text() != " " || fused) node["content"].unsupported("' ', before Fuse");
    rule.space = string_pattern(node["pattern"]);
  } else if (type == "Strip") {
    if (node["content"].text() != " ") node["content"].unsupported("' '");
    if (node["stop"].id(INT32_MAX) != 0 || !fused) node["stop"].unsupported("0, after Fuse");
    rule.strip_left = node["start"].id(INT32_MAX);
  } else if (type == "Metaspace") {
    const SplitStep step = read_metaspace(node);
    rule.space = step.text;
    rule.strip_first = step.prepend != SplitStep::Prepend::kNever;
  } else {
    node["type"].unsupported("ByteFallback, ByteLevel, Fuse, Metaspace, Replace, Sequence, Strip");
  }
}

bool read_post_processor(const JsonNode& node, TokenizerSpec& spec) {
  if (node.is_null()) return false;
  const std::string& type = node["type"].text();
  if (type == "ByteLevel") return false;  // changes offsets, not ids
  if (type == "Sequence") {
    const JsonNode parts = node["processors"];
    bool found = false;
    for (size_t i = 0; i < parts.array_size(); ++i) found |= read_post_processor(parts.at(i), spec);
    return found;
  }
  if (type == "RobertaProcessing") {  // ["</s>", id] and ["<s>", id]
    const auto id = [&](const char* key) {
      if (node[key].array_size() != 2) node[key].expected("a token and its id");
      return node[key].at(1).id(INT32_MAX);
    };
    spec.prefix.push_back(id("cls"));
    spec.suffix.push_back(id("sep"));
    return true;
  }
  if (type != "TemplateProcessing") {
    node["type"].unsupported("ByteLevel, RobertaProcessing, Sequence, TemplateProcessing");
  }
  const JsonNode parts = node["single"];
  bool behind = false;
  for (size_t i = 0; i < parts.array_size(); ++i) {
    const JsonNode part = parts.at(i);
    if (!part["Sequence"].is_null()) {
      if (behind) part["Sequence"].unsupported("one Sequence");
      behind = true;
      continue;
    }
    const JsonNode ids = node["special_tokens"][part["SpecialToken"]["id"].text()]["ids"];
    if (ids.array_size() == 0) ids.expected("a list of token ids");
    for (size_t k = 0; k < ids.array_size(); ++k) {
      (behind ? spec.suffix : spec.prefix).push_back(ids.at(k).id(INT32_MAX));
    }
  }
  return true;
}

}  // namespace braid
