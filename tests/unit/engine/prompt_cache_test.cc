#include "braid/engine/diffusion/prompt_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace braid {
namespace {

TEST(PromptCache, ARepeatedPromptIsEncodedOnce) {
  PromptCache cache;
  int made = 0;
  const auto get = [&](const std::string& encoder, const std::string& prompt, int64_t length) {
    return cache.get(encoder, prompt, length, [&] {
      return EncodedPrompt{{static_cast<float>(++made)}, length, prompt};
    });
  };
  EXPECT_EQ(get("t5", "a ship", 512).values[0], 1);
  EXPECT_EQ(get("clip", "a ship", 512).values[0], 2);
  EXPECT_EQ(get("t5", "a ship", 77).values[0], 3);
  EXPECT_EQ(get("t5", "a ship ", 512).values[0], 4);
  EXPECT_EQ(get("t5", "a ship", 512).values[0], 1);
  EXPECT_EQ(get("clip", "a ship", 512).cut, "a ship");
  EXPECT_EQ(made, 4);
}

TEST(PromptCache, TheLeastRecentlyUsedGoes) {
  PromptCache cache;
  int made = 0;
  const auto get = [&](size_t i) {
    const int before = made;
    cache.get("t5", std::to_string(i), 8, [&] { return ++made, EncodedPrompt{}; });
    return made > before;
  };
  for (size_t i = 0; i < PromptCache::kEntries; ++i) EXPECT_TRUE(get(i));
  EXPECT_FALSE(get(0));
  EXPECT_TRUE(get(PromptCache::kEntries));  // in place of 1
  EXPECT_FALSE(get(0));
  EXPECT_TRUE(get(1));
}

TEST(PromptCache, AFailureKeepsNothing) {
  PromptCache cache;
  const auto fails = []() -> EncodedPrompt { throw std::runtime_error("no memory"); };
  EXPECT_THROW(cache.get("t5", "a ship", 8, fails), std::runtime_error);
  EXPECT_EQ(cache.get("t5", "a ship", 8, [] { return EncodedPrompt{{1}, 8, ""}; }).tokens, 8);
}

}  // namespace
}  // namespace braid
