// Chat prompts of a real template on a small tokenizer: users cannot spell special tokens.
#include "braid/engine/chat_prompt.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <sstream>

#include "braid/io/tokenizer_load.h"

namespace braid {
namespace {

std::string read(const std::string& path) {
  std::ifstream file(std::string(BRAID_TEST_DATA) + path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return std::move(text).str();
}

class DefuseTest : public testing::Test {
 protected:
  DefuseTest() : tokenizer_(tokenizer_from_json(read("/golden/tokenizer/smollm.json"))) {
    for (int32_t id = 0; id < tokenizer_.vocab_size(); ++id) {
      if (tokenizer_.is_special(id)) special_.push_back(id);
    }
  }

  int64_t specials_in(const std::vector<int32_t>& ids) const {
    return std::ranges::count_if(ids, [&](int32_t id) { return tokenizer_.is_special(id); });
  }

  const std::string mark_ = "\uFDD0";
  Tokenizer tokenizer_;
  std::vector<int32_t> special_;
};

TEST_F(DefuseTest, SpecialTextStaysPlainAndKeepsItsIds) {
  ASSERT_FALSE(special_.empty());
  for (int32_t id : special_) {
    const std::string token(tokenizer_.piece(id));
    const std::string text = "a " + token + token + "b <" + token;
    EXPECT_EQ(specials_in(tokenizer_.encode(text, {.parse_special = true})), 3) << token;
    const auto plain =
        tokenizer_.encode(tokenizer_.defuse(text, mark_),
                          {.add_special = false, .parse_special = true, .mark = mark_});
    EXPECT_EQ(specials_in(plain), 0) << token;
    EXPECT_EQ(plain, tokenizer_.encode(text, {.add_special = false})) << token;
  }
}

TEST_F(DefuseTest, TheTemplatesOwnTokensStillCount) {
  const std::string token(tokenizer_.piece(special_[0]));
  const std::string prompt = token + tokenizer_.defuse("x" + token, mark_) + token;
  const auto ids =
      tokenizer_.encode(prompt, {.add_special = false, .parse_special = true, .mark = mark_});
  EXPECT_EQ(specials_in(ids), 2);
  EXPECT_EQ(tokenizer_.decode(ids, {.skip_special = false}), token + "x" + token + token);
}

}  // namespace
}  // namespace braid
