#include "braid/io/tokenizer_utf8.h"

#include <gtest/gtest.h>
#include <utf8proc.h>

#include <cstdlib>
#include <random>
#include <string>

namespace braid {
namespace {

std::string utf8(char32_t code) {
  std::string out;
  append_utf8(code, out);
  return out;
}

TEST(Utf8, EveryCodePointComesBack) {
  for (uint32_t code = 0; code < 0x110000; ++code) {
    const std::string text = utf8(code) + "x";
    const Utf8Char c = decode_utf8(text, 0);
    if (code >= 0xd800 && code < 0xe000) {
      ASSERT_EQ(c.status, Utf8Status::kInvalid) << code;
      continue;
    }
    ASSERT_EQ(c.status, Utf8Status::kValid) << code;
    ASSERT_EQ(static_cast<uint32_t>(c.code), code);
    ASSERT_EQ(c.size + 1u, text.size()) << code;
    for (int cut = 1; cut < c.size; ++cut) {
      const Utf8Char part = decode_utf8(std::string_view(text).substr(0, cut), 0);
      ASSERT_EQ(part.status, Utf8Status::kIncomplete) << code;
      ASSERT_EQ(part.size, cut);
    }
  }
}

// Against the definition: bytes are kValid where utf8proc reads a character, kIncomplete where some
// byte behind them leads on, and else the invalid part is as long as it could have led on.
TEST(Utf8, TriplesOfBytesFollowTheDefinition) {
  const auto reads = [](const std::string& s) {
    utf8proc_int32_t code;
    return utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(s.data()),
                            static_cast<utf8proc_ssize_t>(s.size()),
                            &code) == static_cast<utf8proc_ssize_t>(s.size());
  };
  const unsigned char continuations[] = {0x80, 0x8f, 0x90, 0x9f, 0xa0, 0xbf};
  const auto leads_on = [&](std::string s) {  // s is a proper start of a character
    for (size_t more = 1; s.size() + more <= 4; ++more) {
      for (int code = 0; code < 216; ++code) {
        std::string longer = s;
        for (size_t i = 0, rest = code; i < more; ++i, rest /= 6) {
          longer += static_cast<char>(continuations[rest % 6]);
        }
        if (reads(longer)) return true;
      }
    }
    return false;
  };
  const unsigned char bytes[] = {0x00, 0x41, 0x7f, 0x80, 0x8f, 0x90, 0x9f, 0xa0, 0xbf,
                                 0xc0, 0xc1, 0xc2, 0xdf, 0xe0, 0xe1, 0xec, 0xed, 0xee,
                                 0xef, 0xf0, 0xf1, 0xf3, 0xf4, 0xf5, 0xff};
  for (const unsigned char a : bytes) {
    for (const unsigned char b : bytes) {
      for (const unsigned char c : bytes) {
        const std::string s{static_cast<char>(a), static_cast<char>(b), static_cast<char>(c)};
        const Utf8Char got = decode_utf8(s, 0);
        SCOPED_TRACE(testing::PrintToString(s));
        const std::string taken = s.substr(0, got.size);
        ASSERT_LE(got.size, 3);
        ASSERT_GE(got.size, 1);
        if (got.status == Utf8Status::kValid) {
          EXPECT_TRUE(reads(taken));
        } else {
          for (size_t n = 1; n <= 3; ++n) EXPECT_FALSE(reads(s.substr(0, n)));
          EXPECT_EQ(got.status == Utf8Status::kIncomplete, leads_on(s));
          EXPECT_TRUE(got.size == 1 || leads_on(taken));
          EXPECT_TRUE(got.size == 3 || !leads_on(s.substr(0, got.size + 1)));
        }
      }
    }
  }
}

// Our table against another source of the same facts, where both know the character.
TEST(Utf8, ClassesAgreeWithGeneralCategories) {
  int known = 0;
  for (char32_t code = 0; code < 0x110000; ++code) {
    const auto category = utf8proc_category(static_cast<utf8proc_int32_t>(code));
    if (category == UTF8PROC_CATEGORY_CN || category == UTF8PROC_CATEGORY_CS) continue;
    CharClass expected = CharClass::kOther;
    if (category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO) {
      expected = CharClass::kLetter;
    } else if (category >= UTF8PROC_CATEGORY_ND && category <= UTF8PROC_CATEGORY_NO) {
      expected = CharClass::kNumber;
    } else if ((category >= UTF8PROC_CATEGORY_ZS && category <= UTF8PROC_CATEGORY_ZP) ||
               (code >= 9 && code <= 13) || code == 0x85) {
      expected = CharClass::kSpace;
    }
    ASSERT_EQ(char_class(code), expected) << std::hex << static_cast<uint32_t>(code);
    const ClassedChar c = classed_char(utf8(code), 0);
    ASSERT_EQ(c.kind, expected);
    ASSERT_EQ(c.size, utf8(code).size());
    ++known;
  }
  EXPECT_GT(known, 280000);
}

std::string reference_nfc(const std::string& text) {
  utf8proc_uint8_t* out = utf8proc_NFC(reinterpret_cast<const utf8proc_uint8_t*>(text.c_str()));
  const std::string result = reinterpret_cast<const char*>(out);
  std::free(out);
  return result;
}

TEST(Nfc, EveryCodePointEqualsTheReference) {
  for (char32_t code = 1; code < 0x110000; ++code) {
    if (code >= 0xd800 && code < 0xe000) continue;
    const std::string text = "a" + utf8(code) + "\u0301";
    ASSERT_EQ(to_nfc(text), reference_nfc(text)) << std::hex << static_cast<uint32_t>(code);
  }
}

TEST(Nfc, RandomTextEqualsTheReference) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937 rng(seed);
  const char32_t pool[] = {'a',    'e',    'q',    0xe9,   0x212b, 0x1e0b, 0x301,   0x323,
                           0x307,  0x308,  0x327,  0x344,  0x345,  0x1100, 0x1161,  0x11a8,
                           0xac00, 0x304b, 0x3099, 0xfb1d, 0x2126, 0x0f73, 0x1d15e, 0x4e00};
  for (int round = 0; round < 20000; ++round) {
    std::string text;
    for (int n = static_cast<int>(rng() % 12); n > 0; --n)
      append_utf8(pool[rng() % std::size(pool)], text);
    ASSERT_EQ(to_nfc(text), reference_nfc(text)) << testing::PrintToString(text);
  }
}

TEST(Nfc, KeepsBytesThatAreNotUtf8) {
  EXPECT_EQ(to_nfc("e\u0301\xff"
                   "e\u0301\xe4\xb8"),
            "\u00e9\xff\u00e9\xe4\xb8");
  EXPECT_EQ(to_nfc("e\xff\u0301"), "e\xff\u0301");
  EXPECT_EQ(to_nfc(""), "");
}

// Quadratic sorting of half a million marks would not come back within the test's time limit.
TEST(Nfc, LongRunsOfMarksAreNoTrap) {
  std::string text = "a";
  for (int i = 0; i < 250000; ++i) text += "\u0301\u0323";
  const std::string result = to_nfc(text);
  EXPECT_TRUE(result.starts_with("\u1ea1\u0323"));  // dots below sort in front of acutes
  EXPECT_TRUE(result.ends_with("\u0301\u0301"));
  EXPECT_EQ(result.size(), text.size());
}

}  // namespace
}  // namespace braid
