#include <string>

#include "braid/base/error.h"
#include "braid/io/base64.h"
#include "braid/io/sentencepiece_model.h"
#include "braid/io/tokenizer_json_node.h"
#include "braid/io/tokenizer_json_steps.h"
#include "braid/io/tokenizer_load.h"

namespace braid {
namespace {

using Json = nlohmann::json;

constexpr int32_t kUnigram = 1;
constexpr int kSentinels = 100;
constexpr std::string_view kNamed[] = {"<pad>", "</s>", "<unk>"};

}  // namespace

TokenizerSpec tokenizer_from_sentencepiece(std::string_view model,
                                           std::string_view tokenizer_config_json,
                                           std::string_view name) {
  const SentencePieceModel read = read_sentencepiece(model, name);
  if (read.model_type != kUnigram) {
    fail(ErrorCode::kUnsupported, "{} has model type {}, 1 (unigram) is supported", name,
         read.model_type);
  }
  Json vocab = Json::array(), added = Json::array();
  int32_t end = -1, pad = -1;
  const auto add = [&](std::string text, double score, bool special) {
    const auto id = static_cast<int32_t>(vocab.size());
    if (special) {
      added.push_back({{"content", text}, {"id", id}, {"special", true}, {"normalized", false}});
      if (text == "</s>") end = id;
      if (text == "<pad>") pad = id;
    }
    vocab.push_back({std::move(text), score});
  };
  for (const auto& piece : read.pieces) {
    add(std::string(piece.text), piece.score, std::ranges::count(kNamed, piece.text) > 0);
  }
  for (int i = kSentinels - 1; i >= 0; --i) add(fmt::format("<extra_id_{}>", i), 0, true);
  if (end < 0) fail(ErrorCode::kMalformed, "{} has no piece </s>", name);

  const Json metaspace = {{"type", "Metaspace"},
                          {"replacement", "\u2581"},
                          {"prepend_scheme", "always"},
                          {"split", true}};
  Json document = {
      {"added_tokens", std::move(added)},
      {"pre_tokenizer",
       {{"type", "Sequence"}, {"pretokenizers", {{{"type", "WhitespaceSplit"}}, metaspace}}}},
      {"decoder", metaspace},
      {"post_processor",
       {{"type", "TemplateProcessing"},
        {"single", {{{"Sequence", {{"id", "A"}}}}, {{"SpecialToken", {{"id", "</s>"}}}}}},
        {"special_tokens", {{"</s>", {{"ids", Json::array({end})}}}}}}},
      {"model",
       {{"type", "Unigram"},
        {"unk_id", read.unk_id},
        {"byte_fallback", read.byte_fallback},
        {"vocab", std::move(vocab)}}}};
  if (!read.char_map.empty()) {
    document["normalizer"] = {{"type", "Precompiled"},
                              {"precompiled_charsmap", encode_base64(read.char_map)}};
  }
  TokenizerSpec spec = read_tokenizer(document, tokenizer_config_json, name);
  if (spec.special.eos < 0) spec.special.eos = end;
  if (spec.special.pad < 0) spec.special.pad = pad;
  return spec;
}

}  // namespace braid
