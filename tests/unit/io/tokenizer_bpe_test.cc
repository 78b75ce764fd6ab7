#include "braid/io/tokenizer_bpe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "braid/io/tokenizer_alphabet.h"
#include "braid/io/tokenizer_utf8.h"
#include "unit/io/expect_error.h"

namespace braid {
namespace {

using Ids = std::vector<int32_t>;
using ::testing::ElementsAre;

// A vocabulary made of random merges over a few letters; it owns what its spec points to.
struct RandomModel {
  RandomModel(std::mt19937& rng, bool scores, const std::vector<std::string>& letters) {
    std::set<std::string> seen(letters.begin(), letters.end());
    texts.assign(letters.begin(), letters.end());
    for (int i = 0; i < 60; ++i) {
      const size_t l = rng() % texts.size(), r = rng() % texts.size();
      const std::string whole = texts[l] + texts[r];
      if (whole.size() > 24 || !seen.insert(whole).second) continue;
      pairs.emplace_back(l, r);
      texts.push_back(whole);
    }
    spec.pieces.assign(texts.begin(), texts.end());
    if (scores) {
      // Shuffled: a piece may be worth more than its parts.
      std::vector<float> values(texts.size());
      for (size_t i = 0; i < values.size(); ++i) values[i] = 3.5f - static_cast<float>(i);
      std::shuffle(values.begin(), values.end(), rng);
      spec.scores = values;
    } else {
      for (const auto& [l, r] : pairs) spec.merges.push_back({spec.pieces[l], spec.pieces[r]});
    }
  }
  std::vector<std::string> texts;
  std::vector<std::pair<size_t, size_t>> pairs;
  TokenizerSpec spec;
};

// The definition, pair by pair over the whole word each time.
Ids reference(const RandomModel& model, Ids ids) {
  for (;;) {
    size_t best = ids.size();
    double best_rank = 1e30;
    int32_t best_id = -1;
    for (size_t i = 0; i + 1 < ids.size(); ++i) {
      double rank = 1e30;
      int32_t id = -1;
      const std::string whole = model.texts[ids[i]] + model.texts[ids[i + 1]];
      for (size_t k = 0; k < model.texts.size(); ++k) {
        if (model.texts[k] == whole) id = static_cast<int32_t>(k);
      }
      if (id < 0) continue;
      if (!model.spec.scores.empty()) {
        rank = -model.spec.scores[id];
      } else {
        for (size_t k = 0; k < model.pairs.size(); ++k) {
          if (static_cast<int32_t>(model.pairs[k].first) == ids[i] &&
              static_cast<int32_t>(model.pairs[k].second) == ids[i + 1]) {
            rank = static_cast<double>(k);
          }
        }
      }
      if (rank < best_rank) {
        best = i;
        best_rank = rank;
        best_id = id;
      }
    }
    if (best == ids.size()) return ids;
    ids[best] = best_id;
    ids.erase(ids.begin() + static_cast<long>(best) + 1);
  }
}

void compare_with_reference(bool scores, const std::vector<std::string>& letters) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937 rng(seed);
  for (int round = 0; round < 60; ++round) {
    const RandomModel model(rng, scores, letters);
    const Vocabulary vocab(model.spec.pieces);
    const std::vector<uint8_t> flags(model.spec.pieces.size());
    const Bpe bpe(model.spec, vocab, flags);
    for (const size_t length : {1, 2, 3, 7, 23, 24, 25, 26, 60}) {
      for (int repeat = 0; repeat < 3; ++repeat) {
        std::string word;
        Ids start;
        for (size_t i = 0; i < length; ++i) {
          const auto id = static_cast<int32_t>(rng() % letters.size());
          start.push_back(id);
          word += letters[id];
        }
        BpeScratch scratch(0);
        Ids ids;
        bpe.encode(word, scratch, ids);
        ASSERT_EQ(ids, reference(model, start)) << word;
      }
    }
  }
}

TEST(Bpe, ByRankEqualsTheDefinition) {
  compare_with_reference(false, {"a", "b", "c"});
}
TEST(Bpe, ByScoreEqualsTheDefinition) {
  compare_with_reference(true, {"a", "b", "c"});
}
// Pieces with a mark inside, and pieces with marks only in front: both ways through the words.
TEST(Bpe, MarksEqualTheDefinition) {
  compare_with_reference(false, {"a", "b", "▁"});
  compare_with_reference(true, {"a", "é", "▁"});
}

TEST(Bpe, CutsAtMarksWhereNoPieceCrossesThem) {
  TokenizerSpec spec;
  spec.pieces = {"▁", "a", "▁a", "aa", "▁▁", "▁▁▁▁"};
  spec.scores = {0, 0, -1, -2, -3, -4};
  const Vocabulary vocab(spec.pieces);
  const std::vector<uint8_t> flags(spec.pieces.size());
  const Bpe bpe(spec, vocab, flags);
  BpeScratch scratch(0);
  Ids ids;
  bpe.encode("▁aa▁▁▁a▁▁▁▁", scratch, ids);
  EXPECT_THAT(ids, ElementsAre(2, 1, 4, 2, 5));
}

TEST(Bpe, RememberedWordsEqualFreshOnes) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937 rng(seed);
  const RandomModel model(rng, false, {"a", "b", "c"});
  const Vocabulary vocab(model.spec.pieces);
  const std::vector<uint8_t> flags(model.spec.pieces.size());
  const Bpe bpe(model.spec, vocab, flags);
  BpeScratch remembers(1 << 20);
  for (int i = 0; i < 20000; ++i) {
    std::string word;
    for (int n = static_cast<int>(rng() % 9) + 1 + (i % 64 == 0) * 30; n > 0; --n) {
      word += static_cast<char>('a' + rng() % 3);
    }
    BpeScratch fresh(0);
    Ids expected, got;
    bpe.encode(word, fresh, expected);
    bpe.encode(word, remembers, got);
    ASSERT_EQ(got, expected) << word;
  }
}

Ids encode(const TokenizerSpec& spec, std::string_view word) {
  const Vocabulary vocab(spec.pieces);
  BpeScratch scratch(0);
  Ids ids;
  const std::vector<uint8_t> flags(spec.pieces.size());
  Bpe(spec, vocab, flags).encode(word, scratch, ids);
  return ids;
}

TEST(Bpe, UnknownCharacters) {
  TokenizerSpec spec;
  spec.pieces = {"<unk>", "a", "b"};
  EXPECT_THAT(encode(spec, "a€b"), ElementsAre(1, 2));  // dropped
  spec.unknown = 0;
  EXPECT_THAT(encode(spec, "a€€b\xff"), ElementsAre(1, 0, 0, 2, 0));
  spec.fuse_unk = true;
  EXPECT_THAT(encode(spec, "a€€b\xff\xfe"), ElementsAre(1, 0, 2, 0));
}

TEST(Bpe, ByteFallbackSpellsCharactersAndLooseBytes) {
  std::vector<std::string> texts = {"<unk>", "a"};
  for (int b = 0; b < 256; ++b) texts.push_back(fmt::format("<0x{:02X}>", b));
  TokenizerSpec spec;
  spec.pieces.assign(texts.begin(), texts.end());
  spec.unknown = 0;
  spec.byte_fallback = true;
  EXPECT_THAT(encode(spec,
                     "a€\xff"
                     "a"),
              ElementsAre(1, 2 + 0xe2, 2 + 0x82, 2 + 0xac, 2 + 0xff, 1));
  spec.pieces.pop_back();  // without <0xFF>
  EXPECT_THAT(encode(spec, "\xff"), ElementsAre(0));
}

TEST(Bpe, IgnoreMergesTakesWholeWords) {
  TokenizerSpec spec;
  spec.pieces = {"a", "b", "ab", "ba", "aba", "Ġab", "Ġ", "bab"};
  spec.merges = {{"a", "b"}};
  spec.byte_level = true;
  EXPECT_THAT(encode(spec, "aba"), ElementsAre(2, 0));
  spec.ignore_merges = true;
  EXPECT_THAT(encode(spec, "aba"), ElementsAre(4));
  EXPECT_THAT(encode(spec, " ab"), ElementsAre(5));
  EXPECT_THAT(encode(spec, "abab"), ElementsAre(2, 2));
  // A token that is found in the text, not by the model.
  spec.types.assign(spec.pieces.size(), TokenType::kNormal);
  spec.types[7] = TokenType::kControl;
  EXPECT_THAT(encode(spec, "bab"), ElementsAre(1, 2));
}

TEST(Bpe, AlphabetHasEveryByteOnce) {
  std::set<std::string_view> seen;
  for (int b = 0; b < 256; ++b) {
    const std::string_view text = byte_alphabet()[b];
    EXPECT_TRUE(seen.insert(text).second);
    const Utf8Char c = decode_utf8(text, 0);
    EXPECT_EQ(c.size, text.size());
    EXPECT_EQ(byte_of(c.code), b);
  }
  EXPECT_EQ(byte_alphabet()[' '], "Ġ");
  EXPECT_EQ(byte_alphabet()['A'], "A");
  EXPECT_EQ(byte_of(' '), -1);
  EXPECT_EQ(byte_of(0x144), -1);
  EXPECT_EQ(byte_of(0x10ffff), -1);
}

TEST(Bpe, RefusesMergesOutsideTheVocabulary) {
  TokenizerSpec spec;
  spec.pieces = {"a", "b", "ab"};
  const auto refused = [&](MergePair merge, std::vector<std::string> parts) {
    spec.merges = {{"a", "b"}, merge};
    parts.push_back("merge 1");
    test::expect_error(ErrorCode::kMalformed, parts, [&] { encode(spec, "a"); });
  };
  refused({"x", "b"}, {"'x' is not in the vocabulary"});
  refused({"a", "y"}, {"'y' is not in the vocabulary"});
  refused({"b", "a"}, {"'ba' is not in the vocabulary"});
  refused({"", "a"}, {"'' is not in the vocabulary"});
}

TEST(Vocabulary, FindsEveryPieceAndNothingElse) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937 rng(seed);
  std::map<std::string, int32_t> expected;
  std::vector<std::string> texts;
  for (int i = 0; i < 5000; ++i) {
    std::string text;
    for (int n = static_cast<int>(rng() % 20); n > 0; --n) text += static_cast<char>(rng() % 5);
    texts.push_back(text);
    if (!text.empty()) expected.try_emplace(text, i);  // the first of equal ones
  }
  const std::vector<std::string_view> pieces(texts.begin(), texts.end());
  const Vocabulary vocab(pieces);
  for (const auto& [text, id] : expected) ASSERT_EQ(vocab.find(text), id);
  for (int i = 0; i < 5000; ++i) {
    std::string text;
    for (int n = static_cast<int>(rng() % 20); n > 0; --n) text += static_cast<char>(rng() % 5);
    const auto at = expected.find(text);
    ASSERT_EQ(vocab.find(text), at == expected.end() ? -1 : at->second);
  }
  EXPECT_EQ(Vocabulary({}).find("a"), -1);
}

}  // namespace
}  // namespace braid
