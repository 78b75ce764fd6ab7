// Tokenizers of image prompts against transformers: CLIP's BPE, T5's unigram.
#include <gtest/gtest.h>

#include <cstdlib>
#include <random>

#include "braid/io/base64.h"
#include "braid/io/padded_prompt.h"
#include "braid/io/sentencepiece_model.h"
#include "braid/io/tokenizer_char_map.h"
#include "braid/io/tokenizer_utf8.h"
#include "unit/io/expect_error.h"
#include "unit/io/tokenizer_golden.h"

namespace braid {
namespace {

using Ids = std::vector<int32_t>;

// Without white space at its ends, as Python's strip.
std::string trimmed(const std::string& text) {
  constexpr const char* kSpace = " \t\n\v\f\r\x1c\x1d\x1e\x1f";
  const auto first = text.find_first_not_of(kSpace);
  if (first == text.npos) return {};
  return text.substr(first, text.find_last_not_of(kSpace) - first + 1);
}

void expect_cases(const Tokenizer& tokenizer, const nlohmann::json& cases) {
  const std::vector<std::string> texts = golden_json("prompts.json");
  ASSERT_EQ(texts.size(), cases.size());
  for (size_t i = 0; i < texts.size(); ++i) {
    SCOPED_TRACE(testing::PrintToString(texts[i]));
    const Ids ids = tokenizer.encode(texts[i], {.parse_special = true});
    EXPECT_EQ(ids, cases[i][0].get<Ids>());
    EXPECT_EQ(trimmed(tokenizer.decode(ids)), trimmed(cases[i][1]));
  }
}

Tokenizer prompt_tokenizer(const std::string& name) {
  return Tokenizer(tokenizer_from_folder(golden_path(name)));
}

class PromptTokenizer : public testing::TestWithParam<const char*> {};

TEST_P(PromptTokenizer, EqualsTransformers) {
  expect_cases(prompt_tokenizer(GetParam()), golden_json(GetParam() + std::string("_cases.json")));
}

INSTANTIATE_TEST_SUITE_P(All, PromptTokenizer, testing::Values("clip", "t5", "t5_json"),
                         [](const auto& info) { return std::string(info.param); });

TEST(PromptTokenizerReal, ClipEqualsTransformers) {
  const char* folder = std::getenv("BRAID_TEST_CLIP");
  if (!folder || !*folder) GTEST_SKIP() << "BRAID_TEST_CLIP names no folder";
  const Tokenizer tokenizer(tokenizer_from_folder(folder));
  EXPECT_EQ(tokenizer.vocab_size(), 49408);
  expect_cases(tokenizer, golden_json("real_clip_cases.json"));
}

// transformers takes "</s>" here, which its normalizer has made of other text; Braid does not.
TEST(PromptTokenizer, NormalizedTextIsNoSpecialToken) {
  const Tokenizer t5 = prompt_tokenizer("t5");
  const Ids ids = t5.encode("\uff1c/s\uff1e", {.add_special = false, .parse_special = true});
  EXPECT_EQ(std::ranges::count(ids, t5.special().eos), 0);
  EXPECT_EQ(t5.decode(ids, {.skip_special = false}), "<<unk>s>");
}

TEST(PaddedPrompt, FillsAndCutsAsTransformers) {
  const Tokenizer clip = prompt_tokenizer("clip");
  const Ids whole = clip.encode("a red circle");
  const PaddedPrompt prompt = padded_prompt(clip, "a red circle", 77);
  EXPECT_EQ(prompt.ids.size(), 77);
  EXPECT_EQ(prompt.tokens, static_cast<int64_t>(whole.size()));
  EXPECT_EQ(prompt.cut, "");
  EXPECT_TRUE(std::equal(whole.begin(), whole.end(), prompt.ids.begin()));
  EXPECT_EQ(prompt.ids.back(), clip.special().pad);
  EXPECT_EQ(clip.special().pad, clip.special().eos);

  const Tokenizer t5 = prompt_tokenizer("t5");
  const PaddedPrompt filled = padded_prompt(t5, "Hi", 512);
  EXPECT_EQ(filled.ids[static_cast<size_t>(filled.tokens) - 1], 1);
  EXPECT_EQ(filled.ids.back(), 0);

  std::string text;
  for (int i = 0; i < 100; ++i) text += "dog ";
  for (const Tokenizer* tokenizer : {&clip, &t5}) {
    const PaddedPrompt cut = padded_prompt(*tokenizer, text + "end", 16);
    EXPECT_EQ(cut.ids.size(), 16);
    EXPECT_EQ(cut.tokens, 16);
    EXPECT_EQ(cut.ids.back(), tokenizer->special().eos);
    EXPECT_TRUE(cut.cut.ends_with("end")) << cut.cut;
  }
  test::expect_error(ErrorCode::kInvalidArgument, {"at least 2"},
                     [&] { padded_prompt(clip, "x", 1); });
}

TEST(Base64, RoundTrips) {
  EXPECT_EQ(encode_base64("f"), "Zg==");
  EXPECT_EQ(encode_base64("foobar"), "Zm9vYmFy");
  for (const char* bad : {"Zg=", "Z===", "Zg==Zg==", "Zm9*", "=AAA"}) {
    EXPECT_FALSE(decode_base64(bad)) << bad;
  }
  std::mt19937 random(testing::UnitTest::GetInstance()->random_seed());
  for (size_t size = 0; size < 40; ++size) {
    std::string bytes(size, '\0');
    for (char& byte : bytes) byte = static_cast<char>(random());
    EXPECT_EQ(decode_base64(encode_base64(bytes)), bytes);
  }
}

TEST(CharMap, RefusesSizesThatDoNotFit) {
  for (const std::string& blob :
       {std::string(), std::string("\4\0\0", 3), std::string("\4\0\0\0xy", 6),
        std::string("\3\0\0\0xyz", 7), std::string("\0\0\0\0", 4)}) {
    test::expect_error(ErrorCode::kMalformed, {"a character map of"}, [&] { CharMap map(blob); });
  }
}

TEST(SentencePieceModel, RefusesCutFiles) {
  const std::string whole = golden_text("t5/spiece.model");
  EXPECT_EQ(read_sentencepiece(whole, "m").pieces.size(), 700);
  test::expect_error(ErrorCode::kMalformed, {"m: a length is broken at byte"},
                     [&] { read_sentencepiece(whole.substr(0, whole.size() - 1), "m"); });
  test::expect_error(ErrorCode::kMalformed, {"no pieces"}, [&] { read_sentencepiece("", "m"); });
  test::expect_error(ErrorCode::kMalformed, {"</s>"},
                     [&] { tokenizer_from_sentencepiece("\x0a\x03\x0a\x01x"); });
}

TEST(Graphemes, ClustersEndWhereMarksEnd) {
  EXPECT_EQ(grapheme_end("e\u0301x", 0), 3);
  EXPECT_EQ(grapheme_end("\r\nx", 0), 2);
  EXPECT_EQ(grapheme_end("\xff\xff", 0), 1);
  EXPECT_EQ(grapheme_end("ab", 1), 2);
}

TEST(Unigram, RefusesWhatItCannotSpellWith) {
  const auto json = [](const std::string& model) {
    return R"({"decoder":{"type":"ByteLevel"},"model":)" + model + "}";
  };
  test::expect_error(ErrorCode::kMalformed, {"no unknown token"},
                     [&] { Tokenizer t(tokenizer_from_json(json(R"({"vocab":[["a",-1]]})"))); });
  test::expect_error(ErrorCode::kMalformed, {"a piece and its log probability"},
                     [&] { tokenizer_from_json(json(R"({"vocab":[["a",-1,2]],"unk_id":0})")); });
  test::expect_error(ErrorCode::kMalformed, {"a log probability"},
                     [&] { tokenizer_from_json(json(R"({"vocab":[["a","b"]],"unk_id":0})")); });
  test::expect_error(ErrorCode::kMalformed, {"unk_id"},
                     [&] { tokenizer_from_json(json(R"({"vocab":[["a",-1]],"unk_id":1})")); });
  test::expect_error(ErrorCode::kUnsupported, {"WordPiece"},
                     [&] { tokenizer_from_json(json(R"({"type":"WordPiece","vocab":{"a":0}})")); });
}

}  // namespace
}  // namespace braid
