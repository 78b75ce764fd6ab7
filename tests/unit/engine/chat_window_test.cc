#include "braid/engine/chat_window.h"

#include <gtest/gtest.h>

namespace braid {
namespace {

// A token for each character.
std::vector<int32_t> encode(const std::vector<ChatMessage>& messages) {
  std::vector<int32_t> ids;
  for (const ChatMessage& m : messages) ids.insert(ids.end(), m.content.begin(), m.content.end());
  return ids;
}

std::vector<ChatMessage> turns() {
  return {{"system", "S"}, {"user", "aa"},      {"assistant", "bb"},
          {"user", "cc"},  {"assistant", "dd"}, {"user", "ee"}};
}

TEST(ChatWindowTest, TheOldestTurnsGoUntilThePromptFits) {
  struct Case {
    int64_t most;
    int dropped;
    const char* left;
  };
  for (const Case& c : {Case{11, 0, "Saabbccddee"}, Case{10, 2, "Sccddee"}, Case{7, 2, "Sccddee"},
                        Case{6, 4, "See"}, Case{1, 4, "See"}}) {
    std::vector<ChatMessage> messages = turns();
    std::vector<int32_t> prompt;
    EXPECT_EQ(drop_oldest_turns(messages, c.most, encode, prompt), c.dropped) << c.most;
    EXPECT_EQ(std::string(prompt.begin(), prompt.end()), c.left) << c.most;
    EXPECT_EQ(messages.front().role, "system");
    EXPECT_EQ(messages.back().content, "ee");
  }
}

}  // namespace
}  // namespace braid
