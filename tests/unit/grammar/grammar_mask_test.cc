// Where a grammar begins in an answer, with a grammar that allows a single text.
#include "braid/grammar/grammar_mask.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "braid/base/error.h"

namespace braid {
namespace {

using testing::ElementsAre;

const GrammarSpelling kSpelling{.texts = {"y", "es", "<think>", "</think>", "<", "think>", ">",
                                          "/think", "</think>\n", ">y", " ", "end", "yes"},
                                .ends = {11},
                                .vocabulary = 40};

class OneText : public CompiledGrammar {
 public:
  explicit OneText(std::string text) : text_(std::move(text)) {}

  class Matcher : public GrammarMatcher {
   public:
    explicit Matcher(std::string text) : rest_(std::move(text)) {}
    bool accept(int32_t id) override {
      const std::string& text = kSpelling.texts.at(static_cast<size_t>(id));
      if (!rest_.starts_with(text)) return false;
      rest_.erase(0, text.size());
      return true;
    }
    void fill(std::span<uint32_t> mask) override {
      std::ranges::fill(mask, 0);
      for (size_t id = 0; id < kSpelling.texts.size(); ++id) {
        const bool end = id == 11;
        if (end ? rest_.empty() : rest_.starts_with(kSpelling.texts[id])) mask[0] |= 1u << id;
      }
    }

   private:
    std::string rest_;
  };
  std::unique_ptr<GrammarMatcher> begin() const override {
    return std::make_unique<Matcher>(text_);
  }
  int64_t bytes() const override { return 0; }

 private:
  const std::string text_;
};

std::vector<int> allowed(const std::string& text, const ReasoningMarks& marks,
                         const std::vector<int32_t>& generated) {
  const auto mask = grammar_mask(std::make_shared<OneText>(text), kSpelling, marks);
  // Asked once for all tokens, or after each.
  const auto each = grammar_mask(std::make_shared<OneText>(text), kSpelling, marks);
  std::span<const uint32_t> words;
  for (size_t n = 0; n <= generated.size(); ++n) words = each(std::span(generated).first(n));
  const std::span<const uint32_t> once = mask(generated);
  EXPECT_EQ(std::vector(once.begin(), once.end()), std::vector(words.begin(), words.end()));
  EXPECT_EQ(words.size(), 2u);
  EXPECT_EQ(words[1], 0u) << "rows without a token";
  std::vector<int> ids;
  for (int id = 0; id < 32; ++id) {
    if ((words[0] >> id & 1) != 0) ids.push_back(id);
  }
  return ids;
}

TEST(GrammarMask, BeginsAtOnceWithoutReasoning) {
  EXPECT_THAT(allowed("yes", {}, {}), ElementsAre(0, 12));
  EXPECT_THAT(allowed("yes", {}, {0}), ElementsAre(1));
  EXPECT_THAT(allowed("yes", {}, {12}), ElementsAre(11));
}

TEST(GrammarMask, TheModelMayReasonFirstOrNot) {
  const ReasoningMarks marks{"<think>", "</think>"};
  EXPECT_THAT(allowed("yes", marks, {}), ElementsAre(0, 2, 4, 12));
  EXPECT_THAT(allowed("yes", marks, {0}), ElementsAre(1));
  EXPECT_THAT(allowed("yes", marks, {4}), ElementsAre(5));
  // Inside: all but the end, and but a token that goes on behind the closing mark.
  EXPECT_THAT(allowed("yes", marks, {2}), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12));
  EXPECT_THAT(allowed("yes", marks, {2, 4, 7}), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 12));
  for (const std::vector<int32_t>& closed :
       std::vector<std::vector<int32_t>>{{2, 3}, {4, 5, 0, 4, 7, 6}, {2, 12, 8}}) {
    EXPECT_THAT(allowed("yes", marks, closed), ElementsAre(0, 12));
  }
  // A text that begins as the mark does can become either.
  EXPECT_THAT(allowed("<y", marks, {4}), ElementsAre(0, 5));
  EXPECT_THAT(allowed("<y", marks, {4, 0}), ElementsAre(11));
  EXPECT_THAT(allowed("<y", marks, {4, 5, 3}), ElementsAre(4));
}

TEST(GrammarMask, APromptCanOpenTheReasoning) {
  const ReasoningMarks marks{"<think>", "</think>", true};
  EXPECT_THAT(allowed("yes", marks, {}), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12));
  EXPECT_THAT(allowed("yes", marks, {1, 3}), ElementsAre(0, 12));
}

TEST(GrammarMask, SaysWhichTokenDoesNotFollow) {
  const auto mask = grammar_mask(std::make_shared<OneText>("yes"), kSpelling, {});
  const std::vector<int32_t> ids = {0, 0};
  try {
    mask(ids);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "token 2 of the answer does not follow its grammar");
  }
}

}  // namespace
}  // namespace braid
