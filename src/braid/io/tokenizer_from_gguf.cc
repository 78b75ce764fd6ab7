#include <algorithm>
#include <array>
#include <string>

#include "braid/base/error.h"
#include "braid/io/quoted.h"
#include "braid/io/tokenizer_flags.h"
#include "braid/io/tokenizer_load.h"

namespace braid {
namespace {

struct Family {
  std::string_view name;  // tokenizer.ggml.pre
  std::array<SplitStep::Kind, 2> split;
  int steps;
  bool nfc = false;
  bool ignore_merges = false;
  bool add_bos = false;
};

using Kind = SplitStep::Kind;
constexpr Family kFamilies[] = {
    {"default", {Kind::kGpt2}, 1},
    {"gpt-2", {Kind::kGpt2}, 1},
    {"gpt2", {Kind::kGpt2}, 1},
    {"phi-2", {Kind::kGpt2}, 1},
    {"smollm", {Kind::kDigits, Kind::kGpt2}, 2},
    {"starcoder", {Kind::kDigits, Kind::kGpt2}, 2},
    {"refact", {Kind::kDigits, Kind::kGpt2}, 2},
    {"llama-bpe", {Kind::kLlama3}, 1, false, true, true},
    {"llama3", {Kind::kLlama3}, 1, false, true, true},
    {"llama-v3", {Kind::kLlama3}, 1, false, true, true},
    {"chatglm-bpe", {Kind::kLlama3}, 1},
    {"glm4", {Kind::kLlama3}, 1},
    {"qwen2", {Kind::kQwen2}, 1, true},
    {"deepseek-r1-qwen", {Kind::kQwen2}, 1, true},
};

const Family& family_of(std::string_view pre, std::string_view name) {
  for (const Family& family : kFamilies) {
    if (family.name == pre) return family;
  }
  std::string known;
  for (const Family& family : kFamilies) {
    if (!known.empty()) known += ", ";
    known += family.name;
  }
  fail(ErrorCode::kUnsupported, "{}: tokenizer.ggml.pre is {}; known are {}", name, quoted(pre),
       known);
}

// Byte-level BPE. Gives whether BOS goes in front unless the file says otherwise.
bool add_words(const GgufMetadata& metadata, TokenizerSpec& spec) {
  const Family& family =
      family_of(metadata.get_or<std::string_view>("tokenizer.ggml.pre", "default"), spec.name);
  spec.byte_level = spec.decode.byte_level = true;
  spec.ignore_merges = family.ignore_merges;
  if (family.nfc) spec.normalize.push_back({NormalizeStep::Kind::kNfc, {}, {}});
  const bool prefix_space = metadata.get_or("tokenizer.ggml.add_space_prefix", false);
  for (int i = 0; i < family.steps; ++i) {
    if (family.split[i] == Kind::kGpt2 && prefix_space) {
      spec.split.push_back({.kind = Kind::kPrefixSpace});
    }
    spec.split.push_back({.kind = family.split[i]});
  }
  const auto merges = metadata.get<std::vector<std::string_view>>("tokenizer.ggml.merges");
  spec.merges.reserve(merges.size());
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    // The pieces hold no space: the byte alphabet spells it otherwise.
    const size_t space = merges[rank].find(' ', 1);
    if (space == std::string_view::npos) {
      fail(ErrorCode::kMalformed, "{}: tokenizer.ggml.merges[{}] is {}, two pieces are expected",
           spec.name, rank, quoted(merges[rank]));
    }
    spec.merges.push_back({merges[rank].substr(0, space), merges[rank].substr(space + 1)});
  }
  return family.add_bos;
}

// SentencePiece BPE.
void add_sentences(const GgufMetadata& metadata, TokenizerSpec& spec) {
  static constexpr const char* kMark = "\u2581";
  spec.scores = metadata.get<std::vector<float>>("tokenizer.ggml.scores");
  spec.byte_fallback = spec.decode.byte_fallback = true;
  spec.fuse_unk = true;
  spec.unknown = spec.special.unk;
  spec.decode.space = kMark;
  if (metadata.get_or("tokenizer.ggml.add_space_prefix", true)) {
    spec.normalize.push_back({NormalizeStep::Kind::kPrepend, {}, kMark});
    spec.decode.strip_left = 1;
  }
  spec.normalize.push_back({NormalizeStep::Kind::kReplace, " ", kMark});
}

// -1 where the file names no token: the key is absent, or holds -1, also as u32.
int32_t special_id(const GgufMetadata& metadata, const char* key) {
  const auto value = metadata.find<int64_t>(key);
  return !value || *value == UINT32_MAX ? -1 : metadata.get<int32_t>(key);
}

}  // namespace

TokenizerSpec tokenizer_from_gguf(const GgufMetadata& metadata, std::string_view name) {
  TokenizerSpec spec;
  spec.name = name;
  const auto model = metadata.get<std::string_view>("tokenizer.ggml.model");
  spec.pieces = metadata.get<std::vector<std::string_view>>("tokenizer.ggml.tokens");
  if (const auto types = metadata.find<std::vector<int32_t>>("tokenizer.ggml.token_type")) {
    spec.types.reserve(types->size());
    for (const int32_t type : *types) {
      // Numbers out of range become 0, which Tokenizer refuses by place and value.
      spec.types.push_back(static_cast<TokenType>(type < 0 || type > 255 ? 0 : type));
    }
  }
  const auto id = [&](const char* key) { return special_id(metadata, key); };
  const auto id_in_range = [&](const char* key) {
    const int32_t value = id(key);
    return value < std::ssize(spec.pieces) ? value : -1;
  };
  spec.special = {.bos = id("tokenizer.ggml.bos_token_id"),
                  .eos = id("tokenizer.ggml.eos_token_id"),
                  .eot = id("tokenizer.ggml.eot_token_id"),
                  .unk = id_in_range("tokenizer.ggml.unknown_token_id"),
                  .pad = id_in_range("tokenizer.ggml.padding_token_id")};
  bool add_bos = false;
  if (model == "gpt2") {
    add_bos = add_words(metadata, spec);
  } else if (model == "llama") {
    add_sentences(metadata, spec);
    add_bos = true;
  } else {
    fail(ErrorCode::kUnsupported, "{}: tokenizer.ggml.model is {}; known are gpt2, llama", name,
         quoted(model));
  }
  const auto around = [&](const char* key, bool otherwise, int32_t special,
                          std::vector<int32_t>& ids) {
    const auto wanted = metadata.find<bool>(key);
    if (!wanted.value_or(otherwise)) return;
    if (special >= 0) {
      ids.push_back(special);
    } else if (wanted) {
      fail(ErrorCode::kMalformed, "{}: {} is true, and the file names no such token", name, key);
    }
  };
  around("tokenizer.ggml.add_bos_token", add_bos, spec.special.bos, spec.prefix);
  around("tokenizer.ggml.add_eos_token", false, spec.special.eos, spec.suffix);
  if (const int32_t eom = id("tokenizer.ggml.eom_token_id"); eom != -1) {
    spec.end_of_generation.push_back(eom);
  }
  // Converters give some end tokens the type normal: here these are control tokens, as in
  // llama.cpp.
  if (spec.types.empty()) spec.types.resize(spec.pieces.size(), TokenType::kNormal);
  for (size_t i = 0; i < std::min(spec.types.size(), spec.pieces.size()); ++i) {
    TokenType& type = spec.types[i];
    if (type == TokenType::kNormal && is_end_text(spec.pieces[i])) type = TokenType::kControl;
    if (type != TokenType::kControl && type != TokenType::kUserDefined &&
        type != TokenType::kUnknown) {
      continue;
    }
    spec.added.push_back({.id = static_cast<int32_t>(i),
                          .text = spec.pieces[i],
                          .special = type != TokenType::kUserDefined});
  }
  return spec;
}

}  // namespace braid
