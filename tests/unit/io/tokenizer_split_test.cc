#include "braid/io/tokenizer_split.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "braid/io/tokenizer_utf8.h"
#include "unit/io/expect_error.h"

namespace braid {
namespace {

using Kind = SplitStep::Kind;
using Pieces = std::vector<std::string>;
using ::testing::ElementsAre;

Pieces split(const std::vector<SplitStep>& steps, std::string_view text, bool first = true) {
  Pieces out;
  PreTokenizer(steps).split(text, first, [&](std::string_view word) { out.emplace_back(word); });
  return out;
}

std::string random_text(std::mt19937& rng, bool invalid) {
  // Characters old enough that every library has the same classes for them.
  static const std::vector<std::string> pool = {
      "a",      "b",      "Z",   "s",      "t",      "S",      "re",     "'",    "'s",     "'S",
      "'T",     "'re",    "'Ve", "'m",     "'ll",    "'LL",    "'d",     "0",    "1",      "12",
      "345",    " ",      " ",   "  ",     "\t",     "\n",     "\n",     "\r\n", "\v",     ".",
      ",",      "!!",     "-",   "_",      "<|",     "|>",     "é",      "ß",    "\u0301", "ж",
      "漢",     "かな",   "한",  "ع",      "١",      "½",      "²",      "Ⅷ",    "\u00a0", "\u0085",
      "\u2009", "\u3000", "😀",   "\u200d", "\ufe0f", "\u017f", "'\u017f"};
  std::string text;
  for (int n = static_cast<int>(rng() % 14); n > 0; --n) {
    text += pool[rng() % pool.size()];
    if (invalid && rng() % 4 == 0) text += static_cast<char>(0x80 + rng() % 0x80);
  }
  return text;
}

class SplitPattern : public testing::TestWithParam<Kind> {};

TEST_P(SplitPattern, EqualsTheRegularExpression) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937 rng(seed);
  const SplitStep pattern{.kind = Kind::kRegex, .text = std::string(pattern_of(GetParam()))};
  const PreTokenizer by_regex({pattern});
  const PreTokenizer by_hand({{.kind = GetParam()}});
  for (int round = 0; round < 30000; ++round) {
    const std::string text = random_text(rng, false);
    Pieces expected, got;
    by_regex.split(text, true, [&](std::string_view word) { expected.emplace_back(word); });
    by_hand.split(text, true, [&](std::string_view word) { got.emplace_back(word); });
    ASSERT_EQ(got, expected) << testing::PrintToString(text);
  }
}

TEST_P(SplitPattern, PiecesOfAnyBytesAreTheText) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937 rng(seed);
  const SplitStep pattern{.kind = Kind::kRegex, .text = std::string(pattern_of(GetParam()))};
  for (const PreTokenizer& splitter :
       {PreTokenizer({{.kind = GetParam()}}), PreTokenizer({pattern}),
        PreTokenizer({{.kind = Kind::kDigits}, {.kind = GetParam()}})}) {
    for (int round = 0; round < 2000; ++round) {
      const std::string text = random_text(rng, true);
      std::string joined;
      splitter.split(text, true, [&](std::string_view word) {
        ASSERT_FALSE(word.empty());
        joined += word;
      });
      ASSERT_EQ(joined, text);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, SplitPattern,
                         testing::Values(Kind::kGpt2, Kind::kLlama3, Kind::kQwen2));

TEST(Split, FamiliesDifferWhereTheyShould) {
  const std::string text = "I'M 12345\n\n x";
  EXPECT_THAT(split({{.kind = Kind::kGpt2}}, text),
              ElementsAre("I", "'", "M", " 12345", "\n\n", " x"));
  EXPECT_THAT(split({{.kind = Kind::kLlama3}}, text),
              ElementsAre("I", "'M", " ", "123", "45", "\n\n", " x"));
  EXPECT_THAT(split({{.kind = Kind::kQwen2}}, text),
              ElementsAre("I", "'M", " ", "1", "2", "3", "4", "5", "\n\n", " x"));
  EXPECT_THAT(split({{.kind = Kind::kDigits}, {.kind = Kind::kGpt2}}, "is 42 a"),
              ElementsAre("is", " ", "4", "2", " a"));
  EXPECT_THAT(split({{.kind = Kind::kDigitRuns}}, "is 42 a7"), ElementsAre("is ", "42", " a", "7"));
}

TEST(Split, PrefixSpaceAndMetaspace) {
  EXPECT_THAT(split({{.kind = Kind::kPrefixSpace}, {.kind = Kind::kGpt2}}, "a b"),
              ElementsAre(" a", " b"));
  EXPECT_THAT(split({{.kind = Kind::kPrefixSpace}}, " a b"), ElementsAre(" a b"));
  const auto metaspace = [](SplitStep::Prepend prepend, bool cut) {
    return std::vector<SplitStep>{
        {.kind = Kind::kMetaspace, .text = "▁", .prepend = prepend, .split = cut}};
  };
  using enum SplitStep::Prepend;
  EXPECT_THAT(split(metaspace(kAlways, true), "a  b"), ElementsAre("▁a", "▁", "▁b"));
  EXPECT_THAT(split(metaspace(kNever, true), "a  b▁c"), ElementsAre("a", "▁", "▁b", "▁c"));
  EXPECT_THAT(split(metaspace(kFirst, false), "a b"), ElementsAre("▁a▁b"));
  EXPECT_THAT(split(metaspace(kFirst, false), "a b", false), ElementsAre("a▁b"));
  EXPECT_THAT(split(metaspace(kAlways, false), " a"), ElementsAre("▁a"));
}

TEST(Split, NoStepsLeaveTheTextWhole) {
  EXPECT_THAT(split({}, "a b"), ElementsAre("a b"));
}

TEST(SplitRegex, CutsMatchesAndGaps) {
  EXPECT_THAT(split({{.kind = Kind::kRegex, .text = "[0-9]+"}}, "ab12c3"),
              ElementsAre("ab", "12", "c", "3"));
  // Matches of nothing cut, and do not loop.
  EXPECT_THAT(split({{.kind = Kind::kRegex, .text = "(?=x)|y"}}, "abxcy"),
              ElementsAre("ab", "xc", "y"));
  EXPECT_THAT(split({{.kind = Kind::kRegex, .text = ""}}, "añ\xff"), ElementsAre("a", "ñ", "\xff"));
  EXPECT_THAT(split({{.kind = Kind::kRegex, .text = "\\w+"}},
                    "a\xff\xfe"
                    "b c"),
              ElementsAre("a", "\xff\xfe", "b", " ", "c"));
}

TEST(SplitRegex, RefusesWhatItCannotBound) {
  test::expect_error(ErrorCode::kUnsupported, {"'(a'", "does not compile"},
                     [] { PreTokenizer({{.kind = Kind::kRegex, .text = "(a"}}); });
  test::expect_error(ErrorCode::kUnsupported, {"at most 16384"}, [] {
    PreTokenizer({{.kind = Kind::kRegex, .text = std::string(20000, 'a')}});
  });
  test::expect_error(ErrorCode::kResource, {"'(a|a)*+b|(a+)+c'"}, [] {
    split({{.kind = Kind::kRegex, .text = "(a|a)*+b|(a+)+c"}}, std::string(60, 'a'));
  });
}

}  // namespace
}  // namespace braid
