// Ids and texts of Hugging Face's tokenizers and of sentencepiece, for every family.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <optional>

#include "braid/base/error.h"
#include "braid/io/gguf_file.h"
#include "unit/io/tokenizer_golden.h"

namespace braid {
namespace {

using Ids = std::vector<int32_t>;

void expect_ids(const Tokenizer& tokenizer, const nlohmann::json& cases) {
  const auto texts = golden_texts();
  ASSERT_EQ(texts.size(), cases["ids"].size());
  for (size_t i = 0; i < texts.size(); ++i) {
    SCOPED_TRACE(testing::PrintToString(texts[i]));
    const Ids plain = cases["ids"][i][0];
    const Ids parsed = cases["ids"][i][1].is_null() ? plain : cases["ids"][i][1].get<Ids>();
    EXPECT_EQ(tokenizer.encode(texts[i], {.add_special = false}), plain);
    EXPECT_EQ(tokenizer.encode(texts[i], {.add_special = false, .parse_special = true}), parsed);
    if (!cases.contains("prefix")) continue;
    Ids whole = cases["prefix"];
    whole.insert(whole.end(), plain.begin(), plain.end());
    for (const int32_t id : cases["suffix"]) whole.push_back(id);
    EXPECT_EQ(tokenizer.encode(texts[i], {.add_special = true}), whole);
  }
}

void expect_decoded(const Tokenizer& tokenizer, const nlohmann::json& cases) {
  EXPECT_GT(cases["decoded"].size(), 0);
  for (const auto& row : cases["decoded"]) {
    const Ids ids = row[0];
    EXPECT_EQ(tokenizer.decode(ids), row[1].get<std::string>());
    EXPECT_EQ(tokenizer.decode(ids, {.skip_special = false}), row[2].get<std::string>());
  }
}

class TokenizerFamily : public testing::TestWithParam<const char*> {};

TEST_P(TokenizerFamily, EqualsHuggingFace) {
  const Tokenizer tokenizer = golden_tokenizer(GetParam());
  const auto cases = golden_json(GetParam() + std::string("_cases.json"));
  expect_ids(tokenizer, cases);
  expect_decoded(tokenizer, cases);
}

INSTANTIATE_TEST_SUITE_P(All, TokenizerFamily, testing::ValuesIn(kFamilies),
                         [](const auto& info) { return std::string(info.param); });

TEST(TokenizerGguf, WordsEqualHuggingFace) {
  const GgufFile file(golden_path("smollm.gguf"));
  const Tokenizer tokenizer(tokenizer_from_gguf(file.metadata()));
  const auto cases = golden_json("smollm_cases.json");
  expect_ids(tokenizer, cases);
  expect_decoded(tokenizer, cases);
  EXPECT_EQ(tokenizer.special().bos, 1);
  EXPECT_EQ(tokenizer.special().eos, 2);
  EXPECT_EQ(tokenizer.type(1), TokenType::kControl);
  EXPECT_TRUE(tokenizer.is_end_of_generation(0));  // <|endoftext|>
  EXPECT_FALSE(tokenizer.is_end_of_generation(1));
  EXPECT_TRUE(tokenizer.is_end_of_generation(2));
}

// Merging by score finds what merging by rank finds.
TEST(TokenizerGguf, SentencesEqualHuggingFace) {
  const GgufFile file(golden_path("llama2.gguf"));
  const Tokenizer tokenizer(tokenizer_from_gguf(file.metadata()));
  const auto cases = golden_json("llama2_cases.json");
  expect_ids(tokenizer, cases);
  expect_decoded(tokenizer, cases);
  EXPECT_EQ(tokenizer.type(0), TokenType::kUnknown);
  EXPECT_EQ(tokenizer.type(3), TokenType::kByte);
  EXPECT_TRUE(tokenizer.is_special(0));
  EXPECT_TRUE(tokenizer.is_end_of_generation(2));
}

TEST(TokenizerGguf, SentencesEqualSentencePiece) {
  const GgufFile file(golden_path("llama2.gguf"));
  const Tokenizer tokenizer(tokenizer_from_gguf(file.metadata()));
  const auto cases = golden_json("sentencepiece_cases.json");
  const auto texts = golden_texts();
  for (size_t i = 0; i < texts.size(); ++i) {
    SCOPED_TRACE(testing::PrintToString(texts[i]));
    EXPECT_EQ(tokenizer.encode(texts[i], {.add_special = false}), cases["ids"][i].get<Ids>());
  }
  for (const auto& row : cases["decoded"]) {
    EXPECT_EQ(tokenizer.decode(row[0].get<Ids>()), row[1].get<std::string>());
  }
}

std::optional<std::string> demo_model() {
  const char* given = std::getenv("BRAID_TEST_MODEL");
  const char* cache = std::getenv("XDG_CACHE_HOME");
  const char* home = std::getenv("HOME");
  const std::string folder = cache ? cache : std::string(home ? home : "") + "/.cache";
  const std::string path = given ? given : folder + "/braid/models/smollm2-135m-instruct-q4_1.gguf";
  if (!std::filesystem::exists(path)) return std::nullopt;
  return path;
}

TEST(TokenizerGguf, DemoModelEqualsHuggingFace) {
  const auto path = demo_model();
  if (!path) GTEST_SKIP() << "the demo model is not there";
  const GgufFile file(*path);
  const Tokenizer tokenizer(tokenizer_from_gguf(file.metadata()));
  expect_ids(tokenizer, golden_json("smollm2_ids.json"));
  EXPECT_EQ(tokenizer.vocab_size(), 49152);
  EXPECT_TRUE(tokenizer.is_end_of_generation(2));
}

}  // namespace
}  // namespace braid
