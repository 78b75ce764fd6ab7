// Regular expressions in their plain form.
#include "braid/grammar/regex.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <regex>

#include "braid/base/error.h"
#include "braid/grammar/character_set.h"

namespace braid {
namespace {

using testing::HasSubstr;

std::string plain(std::string_view pattern, RegexUse use = RegexUse::text) {
  return plain_regex(pattern, use, "here");
}

TEST(Regex, NamesThePositionOfWhatNoGrammarKeeps) {
  const std::pair<const char*, const char*> cases[] = {
      {"a(?=b)", "here: the regular expression, character 3, looks around"},
      {"(?<!b)", "looks around"},
      {"(?i)a", "sets a flag"},
      {"(a)\\1", "has '\\1'"},
      {"\\bfoo", "has '\\b'"},
      {"\\p{L}", "has '\\p'"},
      {"a**", "repeats a repetition"},
      {"*a", "behind nothing"},
      {"a{,3}", "counts nothing"},
      {"a{4,3}", "counts down"},
      {"a{100001}", "repeats more than 100000 times"},
      {"(a", "lacks a ')'"},
      {"a)", "has ')' where nothing opened it"},
      {"[a", "ends too early"},
      {"[]", "a class of nothing"},
      {"[z-a]", "counts down"},
      {"a^b", "has '^' behind a begin"},
      {"a$b", "has '$' before an end"},
      {"(^a)", "has '^' behind a begin"},
      {"\\xg0", "an escape that is no number"},
      {"\\ud800", "half a character"},
      {"a\\", "ends too early"},
      {"\xff", "is no UTF-8"},
  };
  for (const auto& [pattern, message] : cases) {
    try {
      ADD_FAILURE() << pattern << " became " << plain(pattern);
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr(message)) << pattern;
    }
  }
  const std::string deep(100, '(');
  EXPECT_THROW(plain(deep + "a" + std::string(100, ')')), Error);
  for (const char* pattern : {"\"", "\\\\", "\\n", "[\\x00-\\x1f]"})
    EXPECT_THROW(plain(pattern, RegexUse::json_string), Error) << pattern;
}

TEST(Regex, WritesClassesAsRanges) {
  EXPECT_EQ(plain("[^\\S ]"), "(?:[\\u{9}-\\u{d}])");
  EXPECT_NE(plain("\\S").find("\\u{3001}"), std::string::npos);  // behind a blank

  EXPECT_EQ(plain("[\\^]"), "(?:\\^)");
  EXPECT_EQ(plain("(?<name>a)"), "(?:(?:[\\u{61}]))");
  EXPECT_EQ(plain("[\\^a]"), "(?:[\\u{61}\\^])");
  EXPECT_EQ(plain("[A-z]", RegexUse::json_string).find("\\u{5c}"), std::string::npos);
  EXPECT_EQ(plain("^\\d{2,}?$"), "(?:(?:[\\u{30}-\\u{39}]){2,})");
}

// std::regex reads the same words; it has neither \u{...} nor characters beyond a byte.
std::string for_std(const std::string& text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text.compare(i, 3, "\\u{") != 0) {
      out += text[i];
      continue;
    }
    const size_t end = text.find('}', i);
    const auto value = std::min(0x7fl, std::stol(text.substr(i + 3, end - i - 3), nullptr, 16));
    char escaped[8];
    std::snprintf(escaped, sizeof escaped, "\\x%02lx", value);
    out += escaped;
    i = end;
  }
  return out;
}

TEST(Regex, MeansWhatItMeantBefore) {
  const char* patterns[] = {"a|b",    "^a|b$",        "(?:ab|c)+d?", "[^a-c]x",
                            "a.b",    "\\w+\\W\\d",   "(a|)b",       "[\\d_-]{1,3}",
                            "\\s\\S", "x{2}|y{1,2}?", "a\\.b\\/c",   "[\\x41-C]",
                            ""};
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  const std::string letters = "abcdxyq019_-. /A\t]";
  for (const char* pattern : patterns) {
    const std::regex before(pattern), after(for_std(plain(pattern)));
    const std::regex inside(for_std(plain(pattern, RegexUse::json_string)));
    for (int i = 0; i < 3000; ++i) {
      std::string text;
      for (auto n = random() % 6; n > 0; --n) text += letters[random() % letters.size()];
      // Whole texts match; a schema's pattern has a match inside.
      const bool anchored = std::string_view(pattern).find('^') == std::string_view::npos;
      if (anchored) {
        ASSERT_EQ(std::regex_match(text, before), std::regex_match(text, after))
            << pattern << " " << text;
      }
      if (text.find('\t') != std::string::npos) continue;  // JSON escapes it
      ASSERT_EQ(std::regex_search(text, before), std::regex_match(text, inside))
          << pattern << " " << text;
    }
  }
}

TEST(CharacterSet, ReadsUtf8) {
  EXPECT_EQ(characters_of("aé€😀"), (std::vector<uint32_t>{'a', 0xe9, 0x20ac, 0x1f600}));
  for (const char* broken : {"\x80", "\xc3", "\xe2\x82", "\xf0\x9f\x98", "\xc3("})
    EXPECT_TRUE(characters_of(broken).empty());
  for (const uint32_t c : {0x24u, 0xe9u, 0x20acu, 0x1f600u})
    EXPECT_EQ(characters_of(text_of(c)), std::vector<uint32_t>{c});
}

}  // namespace
}  // namespace braid
