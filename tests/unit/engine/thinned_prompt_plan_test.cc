// How a prompt with thinned keys is divided, chosen by simulation on devices that are not there.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "braid/engine/prompt_plan.h"
#include "braid/engine/step_fit.h"

namespace braid {
namespace {

std::string config(const char* name) {
  return fmt::format("{}/../configs/{}.json", BRAID_TEST_DATA, name);
}

PromptRequest request(int64_t tokens, const std::string& machines) {
  return {.config = config("llama-3-8b-1m"), .machines = machines, .tokens = tokens};
}

constexpr double pairs_to(double n) {
  return n * (n + 1) / 2;
}

// Of 8 parts in a step of `tokens` tokens each reads half of every earlier part.
constexpr double halved(double tokens) {
  const double n = tokens / 8;
  return 8 * pairs_to(n) + 28 * n * n / 2;
}

// Two of 32 layers are dense. Four ranks take the prompt in one step; one rank takes it in two, and
// the second reads all keys of the first.
TEST(ThinnedPromptPlan, ThinnedPromptsHaveFewerPairs) {
  constexpr double kTokens = 131072;
  PromptRequest r = request(131072, "1x4");
  const PromptPlan dense = plan_prompt(r);
  EXPECT_FALSE(dense.levels || dense.approximation(dense.taken()));
  r.thinning.keep = {0.5};
  const PromptPlan thin = plan_prompt(r);
  ASSERT_EQ(thin.candidates.size(), dense.candidates.size());
  EXPECT_EQ(thin.levels, key_levels({0.5}, {}, 4));
  const double all = pairs_to(kTokens), half = kTokens / 2;
  const double once = (30 * halved(kTokens) + 2 * all) / (32 * all);
  const double twice = (30 * (2 * halved(half) + half * half) + 2 * all) / (32 * all);
  int seen = 0;
  for (size_t i = 0; i < thin.candidates.size(); ++i) {
    const PromptCandidate &c = thin.candidates[i], &exact = dense.candidates[i];
    SCOPED_TRACE(fmt::format("{} over {}", c.name(), c.ranks()));
    if (!c.refused.empty()) {
      const bool ring = c.mesh && c.mesh->mode == SpMode::ring;
      EXPECT_TRUE(c.ranks() == 3 || !ring);
      continue;
    }
    ++seen;
    ASSERT_LE(c.steps, 2);
    const double share = c.steps == 1 ? once : twice;
    EXPECT_NEAR(thin.approximation(c)->shares.pair_share(), share, 1e-9);
    EXPECT_NEAR(thin.approximation(c)->shares.key_share(), (30 * 0.5 + 2) / 32, 1e-9);
    EXPECT_GT(c.seconds, share * exact.seconds) << "products stay";
    EXPECT_LT(c.seconds, 0.95 * exact.seconds);
    EXPECT_EQ(c.token_seconds, exact.token_seconds) << "answers read all keys";
  }
  EXPECT_EQ(seen, 5) << "one rank, and weights or a ring over 2 and 4";
  EXPECT_EQ(thin.taken().name(), dense.taken().name());
}

// Interpolated steps count what each of them reads.
TEST(ThinnedPromptPlan, PairsOfManyStepsAddUp) {
  PromptRequest r = request(45 * 2048 + 100, "1x1");
  r.memory_gb = 28.67;  // weights 16.1 GB, keys 12.1, a step's copies of a layer's keys 0.35
  r.thinning = {.keep = {0.5}, .groups = {4}};
  const PromptPlan plan = plan_prompt(r);
  ASSERT_EQ(plan.taken().rank_tokens, kLeastRankTokens);
  ASSERT_EQ(plan.taken().steps, 46);
  LevelShares sum;
  for (int i = 0; i < 46; ++i) {
    PromptRequest step = request(i < 45 ? 2048 : 100, "1x1");
    step.thinning = r.thinning;
    step.cached = int64_t{i} * 2048;
    sum += plan_prompt(step).taken().shares;
  }
  EXPECT_NEAR(plan.taken().shares.pairs / sum.pairs, 1, 1e-9);
  EXPECT_NEAR(plan.taken().shares.dense_pairs / sum.dense_pairs, 1, 1e-9);
  EXPECT_NEAR(plan.taken().shares.far_keys / sum.far_keys, 1, 1e-9);
}

// A device has the parts of eight ranks, or of the last group's.
TEST(ThinnedPromptPlan, ADeviceHasThePartsOfManyRanks) {
  PromptRequest r = request(4096, "1x1");
  r.thinning.keep = {0.5};
  EXPECT_EQ(plan_prompt(r).levels, key_levels({0.5}, {}, 8));
  r.thinning.groups = {2, 4};
  EXPECT_EQ(plan_prompt(r).levels, key_levels({0.5}, {2, 4}, 4));
  r.tokens = 3;
  const PromptPlan plan = plan_prompt(r);
  EXPECT_FALSE(plan.approximation(plan.taken())) << "not every part has a token";
}

// As its kernel says in a run; a ring's ranks have their own parts alone.
TEST(ThinnedPromptPlan, AGpuThinsThePartsOfSixteenRanks) {
  const auto refused = [](const PromptRequest& r) {
    std::vector<int> ranks;
    for (const PromptCandidate& c : plan_prompt(r).candidates) {
      if (c.refused.find("far keys of 32 ranks' parts: a GPU thins") != std::string::npos) {
        ranks.push_back(c.mesh ? c.ranks() : -c.ranks());
      }
    }
    return ranks;
  };
  PromptRequest r = request(4096, "1x2");
  r.thinning = {.keep = {0.5}, .groups = {16}};
  EXPECT_TRUE(refused(r).empty());
  r.thinning.groups = {32};
  EXPECT_EQ(refused(r), (std::vector{-1, -2})) << "one GPU, and weights divided over two";
  r.tokens = 31;
  EXPECT_TRUE(refused(r).empty()) << "exact: not every part has a token";
  r.tokens = 4096;
  r.thinning.groups = {34};
  try {
    plan_prompt(r);
    ADD_FAILURE() << "no candidate is left";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("a GPU thins those of 16 at most"), std::string::npos)
        << error.what();
  }
  Profile cpu = load_profile("h200");
  cpu.shared_units = true;
  const std::string path = testing::TempDir() + "shared_units.json";
  save_profile(cpu, path);
  r.profile = path;
  EXPECT_TRUE(refused(r).empty()) << "CPU ranks take more";
}

TEST(ThinnedPromptPlan, WrongThinningIsRefusedAsInARun) {
  const auto expect = [](const char* name, const Thinning& thinning, const std::string& text) {
    PromptRequest r = request(4096, "1x4");
    r.config = config(name);
    r.thinning = thinning;
    try {
      plan_prompt(r);
      ADD_FAILURE() << text;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(text), std::string::npos) << error.what();
    }
  };
  expect("llama-3-8b", {.keep = {1.5}}, "--keep is 1.5, wanted above 0 and at most 1");
  expect("llama-3-8b", {.keep = {0.2, 0.3}, .groups = {2, 4}}, "--keep rises from 0.2 to 0.3");
  expect("llama-3-8b", {.keep = {0.5, 0.2}}, "--keep has 2 shares, wanted 1 to 1");
  expect("llama-3-8b", {.keep = {0.5}, .groups = {3, 4}}, "--levels 3,4: groups of 3 ranks");
  expect("llama-3-8b", {.keep = {0.5}, .groups = {2}}, "--levels 2: the last group has 2 of 4");
  expect("deepseek-v2-lite", {.keep = {0.5}}, "--keep: latent attention reads a cache of all");
}

}  // namespace
}  // namespace braid
