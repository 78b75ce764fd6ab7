// What the loaders take and refuse.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "braid/io/gguf_file.h"
#include "unit/io/expect_error.h"
#include "unit/io/gguf_writer.h"
#include "unit/io/temp_folder.h"
#include "unit/io/tokenizer_golden.h"

namespace braid {
namespace {

using nlohmann::json;
using test::encoded;
using test::expect_error;
using test::GgufWriter;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

json small() {
  return json::parse(R"({
    "added_tokens": [{"id": 4, "content": "<s>", "special": true, "normalized": false}],
    "normalizer": null,
    "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false},
    "post_processor": null,
    "decoder": {"type": "ByteLevel"},
    "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2, "Ġ": 3}, "merges": ["a b"]}
  })");
}

TokenizerSpec load(const json& document, const json& config = nullptr) {
  return tokenizer_from_json(document.dump(), config.is_null() ? "" : config.dump(), "t.json");
}

json patched(const char* pointer, const json& value) {
  json document = small();
  document[json::json_pointer(pointer)] = value;
  return document;
}

void refused(const char* pointer, const json& value, const std::vector<std::string>& parts,
             ErrorCode code = ErrorCode::kMalformed) {
  auto all = parts;
  all.push_back("t.json: ");
  SCOPED_TRACE(pointer + std::string(" = ") + value.dump());
  expect_error(code, all, [&] { Tokenizer tokenizer(load(patched(pointer, value))); });
}

TEST(TokenizerJson, ReadsTheSmallOne) {
  const Tokenizer tokenizer(load(small()));
  EXPECT_THAT(tokenizer.encode("ab a<s>", {.parse_special = true}), ElementsAre(2, 3, 0, 4));
  EXPECT_EQ(tokenizer.vocab_size(), 5);
  EXPECT_EQ(tokenizer.type(4), TokenType::kControl);
}

TEST(TokenizerJson, MergesMayBePairs) {
  const Tokenizer tokenizer(load(patched("/model/merges", json::parse(R"([["a", "b"]])"))));
  EXPECT_THAT(tokenizer.encode("ab"), ElementsAre(2));
}

TEST(TokenizerJson, IdsMayHaveGaps) {
  const Tokenizer tokenizer(load(patched("/added_tokens/0/id", 9)));
  EXPECT_EQ(tokenizer.vocab_size(), 10);
  EXPECT_EQ(tokenizer.type(6), TokenType::kUnused);
  EXPECT_EQ(tokenizer.decode(std::vector{0, 6, 1}), "ab");
}

TEST(TokenizerJson, ConfigNamesSpecialTokens) {
  const json config = json::parse(R"({
    "bos_token": {"content": "<s>", "lstrip": false}, "eos_token": "ab", "pad_token": "absent",
    "add_bos_token": true, "add_eos_token": true,
    "image_token": "<i>", "additional_special_tokens": [{"content": "<j>"}],
    "added_tokens_decoder": {"4": {"content": "<s>", "special": false},
                             "5": {"content": "<new>", "special": true},
                             "6": {"content": "<i>"}, "7": {"content": "<j>"},
                             "8": {"content": "<plain>", "normalized": false}}})");
  const Tokenizer tokenizer(load(small(), config));
  EXPECT_EQ(tokenizer.special().bos, 4);
  EXPECT_EQ(tokenizer.special().eos, 2);
  EXPECT_EQ(tokenizer.special().pad, -1);
  for (const int32_t id : {2, 4, 5, 6, 7, 8}) EXPECT_EQ(tokenizer.is_special(id), id != 8) << id;
  EXPECT_EQ(tokenizer.type(8), TokenType::kUserDefined);
  EXPECT_TRUE(tokenizer.is_end_of_generation(2));
  // What is named as special is none in plain text, whatever the file says of it elsewhere.
  EXPECT_THAT(tokenizer.encode("a<s><i><j>ab<plain>"), ElementsAre(4, 0, 0, 1, 8, 2));
  EXPECT_THAT(tokenizer.encode("<s>ab<j>", {.add_special = false, .parse_special = true}),
              ElementsAre(4, 2, 7));
}

TEST(TokenizerJson, TemplateGoesBeforeConfig) {
  const json document = patched("/post_processor", json::parse(R"({
    "type": "TemplateProcessing",
    "single": [{"SpecialToken": {"id": "x"}}, {"Sequence": {"id": "A"}},
               {"SpecialToken": {"id": "y"}}],
    "special_tokens": {"x": {"ids": [4, 0]}, "y": {"ids": [1]}}})"));
  const Tokenizer tokenizer(
      load(document, json::parse(R"({"bos_token": "<s>", "add_bos_token": true})")));
  EXPECT_THAT(tokenizer.encode("ab"), ElementsAre(4, 0, 2, 1));
}

TEST(TokenizerJson, SplitByString) {
  const Tokenizer tokenizer(load(patched("/pre_tokenizer", json::parse(R"({
    "type": "Sequence", "pretokenizers": [
      {"type": "Split", "pattern": {"String": "b.a"}, "behavior": "Isolated", "invert": false},
      {"type": "ByteLevel", "add_prefix_space": false, "use_regex": false}]})"))));
  EXPECT_THAT(tokenizer.encode("ab.ab"), ElementsAre(0, 1, 0, 1));
  EXPECT_THAT(tokenizer.encode("abxab"), ElementsAre(2, 2));
}

TEST(TokenizerJson, RefusesWhatIsNotJson) {
  for (const std::string text :
       {"", "{", "[]", "7", "nul", "{\"a\": 1e999}", "\xff", "{\"a\":\"\xff\"}"}) {
    expect_error(ErrorCode::kMalformed, {"t.json"},
                 [&] { tokenizer_from_json(text, "", "t.json"); });
  }
  // Deep nesting neither overflows the stack nor passes.
  const std::string deep = "{\"model\":" + std::string(1 << 20, '[');
  expect_error(ErrorCode::kMalformed, {"t.json"}, [&] { tokenizer_from_json(deep, "", "t.json"); });
  expect_error(ErrorCode::kMalformed, {"tokenizer_config.json"},
               [&] { tokenizer_from_json(small().dump(), "[]", "t.json"); });
}

TEST(TokenizerJson, RefusesMalformedFields) {
  refused("/model", 1, {"model is 1", "an object"});
  refused("/model/vocab", nullptr, {"model.vocab is null", "an object"});
  refused("/model/vocab", json::object(), {"merge 0", "'a' is not in the vocabulary"});
  refused("/model/vocab/a", "x", {"model.vocab['a'] is 'x'", "a token id from 0"});
  refused("/model/vocab/a", -1, {"model.vocab['a'] is -1"});
  refused("/model/vocab/a", 1.5, {"model.vocab['a'] is 1.5"});
  refused("/model/vocab/a", 4000000000, {"4000000000", "to 65545"});
  refused("/model/vocab/a", UINT64_MAX, {"18446744073709551615"});
  refused("/model/vocab/a", 1, {"'a' and 'b' both have id 1"});
  refused("/model/merges", "a b", {"model.merges is 'a b'", "an array"});
  refused("/model/merges/0", "ab", {"model.merges[0] is 'ab'"});
  refused("/model/merges/0", "a b c", {"model.merges[0] is 'a b c'"});
  refused("/model/merges/0", 5, {"model.merges[0] is 5"});
  refused("/model/merges/0", json::array({"a"}), {"model.merges[0] is an array of 1"});
  refused("/model/merges/0", json::array({"a", 1}), {"model.merges[0][1] is 1", "a string"});
  refused("/model/merges/0", "b a", {"merge 0", "'ba'"});
  refused("/model/unk_token", "none", {"model.unk_token is 'none'"});
  refused("/model/ignore_merges", 1, {"model.ignore_merges is 1", "true or false"});
  refused("/added_tokens", 1, {"added_tokens is 1", "an array"});
  refused("/added_tokens/0", "x", {"added_tokens[0] is 'x'"});
  refused("/added_tokens/0/id", nullptr, {"added_tokens[0].id is null"});
  refused("/added_tokens/0/id", 1, {"'b' and '<s>' both have id 1"});
  refused("/added_tokens/0/content", 1, {"added_tokens[0].content is 1"});
  refused("/added_tokens/0/special", "yes", {"added_tokens[0].special is 'yes'"});
  refused("/normalizer", json::object(), {"normalizer.type is null"});
  refused("/normalizer", {{"type", "Prepend"}}, {"normalizer.prepend is null"});
  refused("/decoder", nullptr, {"decoder is null"});
  refused("/post_processor", json::parse(R"({"type": "TemplateProcessing", "special_tokens": {},
                          "single": [{"SpecialToken": {"id": "q"}}]})"),
          {"special_tokens"});
  refused("/post_processor",
          json::parse(R"({"type": "TemplateProcessing", "special_tokens": {"q": {"ids": [99]}},
                          "single": [{"SpecialToken": {"id": "q"}}]})"),
          {"id 99", "ends at 4"});
}

TEST(TokenizerJson, RefusesWhatIsNotSupported) {
  const auto unsupported = [](const char* pointer, const json& value,
                              const std::vector<std::string>& parts) {
    refused(pointer, value, parts, ErrorCode::kUnsupported);
  };
  unsupported("/model/type", "Unigram", {"model.type is 'Unigram'", "known: BPE"});
  unsupported("/model/dropout", 0.1, {"model.dropout is 0.1"});
  unsupported("/model/continuing_subword_prefix", "##", {"continuing_subword_prefix is '##'"});
  unsupported("/normalizer", {{"type", "NFKC"}}, {"normalizer.type is 'NFKC'", "NFC"});
  unsupported("/pre_tokenizer", {{"type", "Whitespace"}}, {"'Whitespace'", "ByteLevel"});
  unsupported("/pre_tokenizer",
              json::parse(R"({"type": "Split", "pattern": {"Regex": "a"}, "behavior": "Dropped"})"),
              {"'Dropped'", "Isolated"});
  unsupported(
      "/pre_tokenizer",
      json::parse(R"({"type": "Split", "pattern": {"Regex": "("}, "behavior": "Isolated"})"),
      {"'('", "does not compile"});
  unsupported("/pre_tokenizer", json::parse(R"({"type": "Sequence", "pretokenizers": [
                {"type": "ByteLevel"}, {"type": "Digits"}]})"),
              {"pretokenizers[1]", "ByteLevel"});
  unsupported("/decoder", {{"type", "WordPiece"}}, {"'WordPiece'"});
  unsupported("/post_processor", {{"type", "BertProcessing"}}, {"'BertProcessing'"});
}

TEST(TokenizerJson, RefusesMalformedConfig) {
  const auto bad = [](const json& config, const std::vector<std::string>& parts) {
    expect_error(ErrorCode::kMalformed, parts, [&] { load(small(), config); });
  };
  bad({{"eos_token", "absent"}}, {"tokenizer_config.json: eos_token is 'absent'"});
  bad({{"eos_token", 7}}, {"tokenizer_config.json: eos_token is 7"});
  bad({{"added_tokens_decoder", {{"x", {{"content", "y"}}}}}}, {"added_tokens_decoder['x']"});
  bad({{"added_tokens_decoder", {{"99999999", {{"content", "y"}}}}}}, {"99999999"});
}

// tokenizer.ggml.* keys of a small model, which each test changes.
struct GgufCase {
  std::string model = "gpt2";
  std::string pre = "gpt-2";
  std::vector<std::string> tokens = {"a", "b", "ab", "Ġ", "<s>"};
  std::vector<int32_t> types = {1, 1, 1, 1, 3};
  std::vector<std::string> merges = {"a b"};
  std::vector<float> scores;
  GgufWriter more;

  GgufFile write(const test::TempFolder& folder) {
    GgufWriter& w = more;
    w.text("general.architecture", "llama").text("tokenizer.ggml.model", model);
    if (!pre.empty()) w.text("tokenizer.ggml.pre", pre);
    const auto strings = [&](const char* key, const std::vector<std::string>& values) {
      std::vector<std::string> out;
      for (const auto& value : values) out.push_back(encoded(std::string_view(value)));
      if (!out.empty()) w.array(key, 8, out);
    };
    const auto numbers = [&](const char* key, uint32_t type, const auto& values) {
      std::vector<std::string> out;
      for (const auto value : values) out.push_back(encoded(value));
      if (!out.empty()) w.array(key, type, out);
    };
    strings("tokenizer.ggml.tokens", tokens);
    strings("tokenizer.ggml.merges", merges);
    numbers("tokenizer.ggml.token_type", 5, types);
    numbers("tokenizer.ggml.scores", 6, scores);
    return GgufFile(folder.write("m.gguf", w.build()));
  }
};

void gguf_refused(GgufCase given, const std::vector<std::string>& parts,
                  ErrorCode code = ErrorCode::kMalformed) {
  const test::TempFolder folder;
  const GgufFile file = given.write(folder);
  auto all = parts;
  all.push_back("m.gguf");
  expect_error(code, all,
               [&] { Tokenizer tokenizer(tokenizer_from_gguf(file.metadata(), "m.gguf")); });
}

TEST(TokenizerGgufKeys, DecideAboutBosAndSpaces) {
  const test::TempFolder folder;
  const auto ids = [&](GgufCase given, std::string_view text) {
    const GgufFile file = given.write(folder);
    return Tokenizer(tokenizer_from_gguf(file.metadata())).encode(text);
  };
  EXPECT_THAT(ids({}, "ab"), ElementsAre(2));
  GgufCase bos;
  bos.more.u32("tokenizer.ggml.bos_token_id", 4)
      .u32("tokenizer.ggml.eos_token_id", 3)
      .entry("tokenizer.ggml.add_bos_token", 7, encoded<uint8_t>(1))
      .entry("tokenizer.ggml.add_eos_token", 7, encoded<uint8_t>(1))
      .entry("tokenizer.ggml.add_space_prefix", 7, encoded<uint8_t>(1));
  EXPECT_THAT(ids(bos, "ab"), ElementsAre(4, 3, 2, 3));
  GgufCase llama3;  // in front by itself
  llama3.pre = "llama-bpe";
  llama3.more.u32("tokenizer.ggml.bos_token_id", 4);
  EXPECT_THAT(ids(llama3, "ab"), ElementsAre(4, 2));
  GgufCase plain;
  plain.pre = "";  // older files do not say
  EXPECT_THAT(ids(plain, "ab"), ElementsAre(2));
  GgufCase spm;
  spm.model = "llama";
  spm.tokens = {"a", "b", "▁", "▁a", "<s>"};
  spm.scores = {-1, -2, -3, 0, 0};
  spm.merges = {};
  spm.more.u32("tokenizer.ggml.bos_token_id", 4);
  EXPECT_THAT(ids(spm, "a b"), ElementsAre(4, 3, 2, 1));
  spm.more.entry("tokenizer.ggml.add_space_prefix", 7, encoded<uint8_t>(0));
  EXPECT_THAT(ids(spm, "a b"), ElementsAre(4, 0, 2, 1));
}

TEST(TokenizerGgufKeys, TokensThatNothingNeedsMayBeMissing) {
  const test::TempFolder folder;
  const auto special = [&](const char* key, uint32_t id) {
    GgufCase given;
    given.more.u32(key, id);
    const GgufFile file = given.write(folder);
    const Tokenizer tokenizer(tokenizer_from_gguf(file.metadata()));
    EXPECT_THAT(tokenizer.encode("ab"), ElementsAre(2));
    return tokenizer.special();
  };
  for (const uint32_t id : {5u, 100000u, UINT32_MAX}) {
    EXPECT_EQ(special("tokenizer.ggml.padding_token_id", id).pad, -1);
    EXPECT_EQ(special("tokenizer.ggml.unknown_token_id", id).unk, -1);
  }
  EXPECT_EQ(special("tokenizer.ggml.padding_token_id", 4).pad, 4);
  EXPECT_EQ(special("tokenizer.ggml.bos_token_id", UINT32_MAX).bos, -1);
}

// GLM-4's files: digits in groups of up to three, no BOS in front.
TEST(TokenizerGgufKeys, GlmSplitsAsLlama3Does) {
  const test::TempFolder folder;
  for (const char* pre : {"chatglm-bpe", "glm4"}) {
    GgufCase glm{.pre = pre,
                 .tokens = {"1", "11", "111", "1111", "<s>"},
                 .merges = {"1 1", "11 1", "111 1"}};
    glm.more.u32("tokenizer.ggml.bos_token_id", 4);
    const GgufFile file = glm.write(folder);
    const Tokenizer tokenizer(tokenizer_from_gguf(file.metadata()));
    EXPECT_THAT(tokenizer.encode("1111"), ElementsAre(2, 0));
  }
}

// Whatever its type, the name of an end token is one, and no text spells it.
TEST(TokenizerGgufKeys, NamesOfEndTokensAreControlTokens) {
  const test::TempFolder folder;
  for (const std::vector<int32_t>& types :
       {std::vector<int32_t>{1, 1, 1, 1, 3}, {1, 1, 1, 1, 1}, {}}) {
    GgufCase given{.tokens = {"a", "b", "ab", "Ġ", "<|im_end|>"}, .types = types};
    const GgufFile file = given.write(folder);
    const Tokenizer tokenizer(tokenizer_from_gguf(file.metadata()));
    EXPECT_TRUE(tokenizer.is_special(4));
    EXPECT_TRUE(tokenizer.is_end_of_generation(4));
    EXPECT_THAT(tokenizer.encode("ab<|im_end|>", {.parse_special = true}), ElementsAre(2, 4));
    EXPECT_THAT(tokenizer.encode("ab<|im_end|>"), ElementsAre(2));
  }
}

TEST(TokenizerGgufKeys, RefusesWhatIsWrong) {
  gguf_refused({.model = "bert"}, {"tokenizer.ggml.model is 'bert'", "gpt2, llama"},
               ErrorCode::kUnsupported);
  gguf_refused({.pre = "deepseek-llm"},
               {"tokenizer.ggml.pre is 'deepseek-llm'", "smollm", "llama-bpe", "qwen2"},
               ErrorCode::kUnsupported);
  gguf_refused({.tokens = {}}, {"tokenizer.ggml.tokens"}, ErrorCode::kNotFound);
  gguf_refused({.merges = {}}, {"tokenizer.ggml.merges"}, ErrorCode::kNotFound);
  gguf_refused({.model = "llama"}, {"tokenizer.ggml.scores"}, ErrorCode::kNotFound);
  gguf_refused({.types = {1, 1}}, {"2 token types for 5 pieces"});
  gguf_refused({.types = {1, 1, 1, 1, 257}}, {"piece 4", "type"});
  gguf_refused({.types = {1, 1, -1, 1, 3}}, {"piece 2", "type"});
  gguf_refused({.merges = {"ab"}}, {"tokenizer.ggml.merges[0] is 'ab'"});
  gguf_refused({.merges = {"b a"}}, {"merge 0", "'ba' is not in the vocabulary"});
  GgufCase eos;
  eos.more.u32("tokenizer.ggml.eos_token_id", 5);
  gguf_refused(eos, {"EOS", "id 5", "ends at 4"});
  GgufCase bos;
  bos.more.entry("tokenizer.ggml.add_bos_token", 7, encoded<uint8_t>(1));
  gguf_refused(bos, {"add_bos_token is true"});
}

}  // namespace
}  // namespace braid
