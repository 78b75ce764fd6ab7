// Level attention of a whole model against tools/make_level_goldens.py: f64, with a mask for each
// layer and KV head, the first and the last layer dense.
#include <gtest/gtest.h>

#include "braid/engine/loaded_model.h"
#include "golden/support/expect_golden.h"
#include "golden/support/level_golden.h"

namespace braid::golden {
namespace {

constexpr CacheShape kCache = {
    .pages = kPages, .page_size = kPageSize, .pages_per_sequence = kPages, .kv_dtype = DType::f32};

class Levels : public testing::Test {
 protected:
  void SetUp() override {
    golden_.write(folder_.path());
    loaded_.emplace(folder_.path().string());
  }
  RunnerConfig config(int ranks, std::vector<double> keep, std::vector<int> groups,
                      Importance importance, bool drop_queries = false) const {
    return {.tp = ranks,
            .sp = SequenceParallel{.mode = SpMode::ring,
                                   .keep = std::move(keep),
                                   .groups = std::move(groups),
                                   .importance = importance,
                                   .drop_queries = drop_queries},
            .cache = kCache,
            .schedule = "sequence_parallel"};
  }
  Rows logits(const RunnerConfig& config, const std::vector<int32_t>& prompt) const {
    Runner runner(loaded_->model, config);
    return prompt_logits(runner, prompt, prompt.size());
  }

  const LevelGolden golden_ = load_level_golden();
  const Folder folder_{"levels"};
  std::optional<LoadedModel> loaded_;
};

TEST_F(Levels, LogitsAreThoseOfTheMasks) {
  for (const LevelGoldenCase& c : golden_.cases) {
    SCOPED_TRACE(c.options.dump());
    const auto option = [&](const char* key) -> const nlohmann::json& { return c.options.at(key); };
    const RunnerConfig ranks = config(option("ranks"), option("keep"), option("groups"),
                                      parse_importance(option("importance").get<std::string>()),
                                      c.options.value("drop_queries", false));
    expect_golden(golden_.columns, c.logits, logits(ranks, c.logits.prompt));
  }
}

// Equal lengths have equal cuts. With `own` tokens are computed as if nothing followed their half,
// to the bit; with the other importances later queries choose their keys.
TEST_F(Levels, OnlyOwnLeavesAPrefixAsItIs) {
  constexpr size_t kTokens = 448;  // parts of 56: 28 keys are kept, 16 are protected
  std::vector<int32_t> prompt(golden_.cases[1].logits.prompt);
  while (prompt.size() < kTokens) prompt.push_back((prompt[prompt.size() - 99] * 5 + 1) % 250);
  std::vector<int32_t> other = prompt;
  for (size_t i = kTokens / 2; i < kTokens; ++i) other[i] = (other[i] * 7 + 3) % 250;
  for (Importance importance : {Importance::own, Importance::probe, Importance::previous}) {
    SCOPED_TRACE(to_string(importance));
    const RunnerConfig ranks = config(4, {0.5}, {}, importance);
    const Rows one = logits(ranks, prompt), two = logits(ranks, other);
    const bool same = std::equal(one.begin(), one.begin() + kTokens / 2, two.begin());
    EXPECT_EQ(same, importance == Importance::own);
    EXPECT_NE(one.back(), two.back());
  }
}

// A rank alone has no far keys.
TEST_F(Levels, OneRankIsExact) {
  const std::vector<int32_t>& prompt = golden_.cases[0].logits.prompt;
  const RunnerConfig alone = config(1, {0.5}, {}, Importance::own);
  EXPECT_EQ(logits(alone, prompt), logits({.cache = kCache}, prompt));
  Runner runner(loaded_->model, alone);
  prompt_logits(runner, prompt, prompt.size());
  EXPECT_FALSE(runner.approximation());
}

// Shares of pairs and keys are counted over all layers and steps; equal shares of 1 are exact.
TEST_F(Levels, SayWhatWasLeftOut) {
  const std::vector<int32_t>& prompt = golden_.cases[0].logits.prompt;
  Runner half(loaded_->model, config(2, {0.5}, {}, Importance::own));
  EXPECT_FALSE(half.approximation()) << "before any prompt";
  prompt_logits(half, {7}, 1);
  EXPECT_FALSE(half.approximation()) << "fewer tokens than ranks";
  prompt_logits(half, prompt, prompt.size());
  ASSERT_TRUE(half.approximation());
  // Of 192 tokens in four parts of 48, three of five layers read half of each earlier part.
  constexpr double kAll = 192 * 193 / 2, kFar = 6 * 48 * 48;
  EXPECT_NEAR(half.approximation()->shares.pair_share(), 1 - 3 * kFar / 2 / (5 * kAll), 1e-12);
  EXPECT_NEAR(half.approximation()->shares.key_share(), 0.7, 1e-12);
  Runner all(loaded_->model, config(2, {1}, {}, Importance::own));
  prompt_logits(all, prompt, prompt.size());
  EXPECT_FALSE(all.approximation());
}

}  // namespace
}  // namespace braid::golden
