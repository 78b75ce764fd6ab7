#include <string>

#include "braid/base/error.h"
#include "braid/io/quoted.h"
#include "braid/io/tokenizer_json_node.h"
#include "braid/io/tokenizer_json_steps.h"
#include "braid/io/tokenizer_load.h"

namespace braid {
namespace {

using Json = nlohmann::json;

constexpr const char* kStart = "<|startoftext|>";
constexpr const char* kEnd = "<|endoftext|>";
constexpr const char* kWords =
    R"(<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+)";

// [["left", "right"], ...] of the lines behind "#version".
Json read_merges(std::string_view text) {
  Json merges = Json::array();
  for (size_t line = 1; !text.empty(); ++line) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view pair = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (pair.ends_with('\r')) pair.remove_suffix(1);
    if (pair.starts_with("#version") || (pair.empty() && text.empty())) continue;
    const size_t space = pair.find(' ');
    if (space == pair.npos || pair.find(' ', space + 1) != pair.npos) {
      fail(ErrorCode::kMalformed, "merges.txt: line {} is {}, two pieces are expected", line,
           quoted(pair));
    }
    merges.push_back({std::string(pair.substr(0, space)), std::string(pair.substr(space + 1))});
  }
  return merges;
}

}  // namespace

TokenizerSpec tokenizer_from_clip(std::string_view vocab_json, std::string_view merges_txt,
                                  std::string_view tokenizer_config_json, std::string_view name) {
  Json vocab = parse_json_object(vocab_json, name);
  const JsonNode node(vocab, fmt::format("{}:", name));
  const Json start = {kStart, node[kStart].id(INT32_MAX)};
  const Json end = {kEnd, node[kEnd].id(INT32_MAX)};
  const auto special = [](const Json& token) {
    return Json{{"content", token[0]}, {"id", token[1]}, {"special", true}, {"normalized", false}};
  };
  const Json fold = {{"type", "Replace"}, {"pattern", {{"Regex", "\\s+"}}}, {"content", " "}};
  const Json words = {{"type", "Split"},
                      {"pattern", {{"Regex", kWords}}},
                      {"behavior", "Removed"},
                      {"invert", true}};
  const Json bytes = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", true}};
  const Json document = {
      {"added_tokens", {special(start), special(end)}},
      {"normalizer",
       {{"type", "Sequence"}, {"normalizers", {{{"type", "NFC"}}, fold, {{"type", "Lowercase"}}}}}},
      {"pre_tokenizer", {{"type", "Sequence"}, {"pretokenizers", {words, bytes}}}},
      {"post_processor", {{"type", "RobertaProcessing"}, {"cls", start}, {"sep", end}}},
      {"decoder", {{"type", "ByteLevel"}}},
      {"model",
       {{"type", "BPE"},
        {"unk_token", kEnd},
        {"end_of_word_suffix", "</w>"},
        {"vocab", std::move(vocab)},
        {"merges", read_merges(merges_txt)}}}};
  TokenizerSpec spec = read_tokenizer(document, tokenizer_config_json, name);
  if (spec.special.bos < 0) spec.special.bos = start[1];
  if (spec.special.eos < 0) spec.special.eos = end[1];
  if (spec.special.pad < 0) spec.special.pad = end[1];
  return spec;
}

}  // namespace braid
