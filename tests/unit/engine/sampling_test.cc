#include "braid/engine/sampling.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <random>
#include <set>

#include "braid/base/error.h"

namespace braid {
namespace {

const std::vector<float> kLogits = {0.0f, 2.0f, 1.0f, -1.0f, 1.5f};

std::map<int32_t, double> frequencies(SamplingParams params, int draws = 20000) {
  Sampler sampler(params);
  std::map<int32_t, double> counts;
  for (int i = 0; i < draws; ++i) {
    std::vector<float> logits = kLogits;
    counts[sampler.sample(logits, {}, {}).id] += 1.0 / draws;
  }
  return counts;
}

std::vector<double> softmax(double temperature) {
  std::vector<double> p;
  double sum = 0;
  for (float x : kLogits) sum += std::exp(x / temperature);
  for (float x : kLogits) p.push_back(std::exp(x / temperature) / sum);
  return p;
}

TEST(Sampling, GreedyTakesTheFirstOfTheMostLikely) {
  std::vector<float> logits = {1, 3, 3, 2};
  EXPECT_EQ(Sampler({}).sample(logits, {}, {}).id, 1);
}

TEST(Sampling, GreedyFindsTheBestWhereverItIs) {
  for (const size_t n :
       {size_t{1}, size_t{31}, size_t{33}, size_t{257}, size_t{1000}, size_t{49153}}) {
    for (const size_t at : {size_t{0}, n / 3, n / 2, n - 1}) {
      std::vector<float> logits(n, -std::numeric_limits<float>::infinity());
      logits[at] = -7;
      logits[n - 1] = -7;  // the later of two that are equal
      EXPECT_EQ(Sampler({}).sample(logits, {}, {}).id, static_cast<int32_t>(at)) << n;
      Sampler drawn({.temperature = 0.5f, .seed = n});
      std::vector<float> one(n, -std::numeric_limits<float>::infinity());
      one[at] = -7;
      EXPECT_EQ(drawn.sample(one, {}, {}).id, static_cast<int32_t>(at)) << n;
    }
  }
}

constexpr float kInfinity = std::numeric_limits<float>::infinity();

TEST(Sampling, LogitsThatAreNumbersAreUsable) {
  for (const size_t n : {size_t{1}, size_t{7}, size_t{1000}, size_t{49153}}) {
    std::vector<float> logits(n, -3);
    EXPECT_TRUE(usable(logits));
    for (const size_t at : {size_t{0}, n / 2, n - 1}) {
      for (const float bad : {NAN, -NAN, kInfinity}) {
        logits[at] = bad;
        EXPECT_FALSE(usable(logits)) << bad << " at " << at << " of " << n;
      }
      logits[at] = std::numeric_limits<float>::max();
      EXPECT_TRUE(usable(logits));
      std::vector<float> one(n, -kInfinity);
      EXPECT_FALSE(usable(one));
      one[at] = std::numeric_limits<float>::lowest();
      EXPECT_TRUE(usable(one));
    }
  }
}

// Beside the same found in plain passes.
TEST(Sampling, TheMostLikelyTokenIsOfUsableLogits) {
  std::mt19937 random(7);
  for (int i = 0; i < 2000; ++i) {
    const size_t n = 1 + random() % (i % 4 == 0 ? 5000 : 70);
    std::vector<float> logits(n);
    for (float& x : logits) x = static_cast<float>(random() % 9) - 4;  // many are equal
    if (i % 3 == 0)
      std::ranges::replace_if(
          logits, [](float x) { return x < 4; }, -kInfinity);
    if (i % 5 == 0) logits[random() % n] = i % 2 == 0 ? NAN : kInfinity;
    const auto best = std::ranges::max_element(logits) - logits.begin();
    EXPECT_EQ(most_likely_token(logits), usable(logits) ? static_cast<int32_t>(best) : -1)
        << "trial " << i << ", " << n << " logits";
  }
}

// Logits at the ends of what f32 holds, penalties and temperatures at the ends of what is allowed.
TEST(Sampling, WhatIsAtTheEndsOfItsRangeIsDrawnFrom) {
  const float most = std::numeric_limits<float>::max();
  const float least = std::numeric_limits<float>::min();
  const std::vector<float> row = {-kInfinity, -most, -1, 0, 1, most / 2};
  const std::vector<int32_t> seen = {0, 1, 2, 3, 4, 5};
  for (const float penalty : {least, 1.0f, most}) {
    for (const float temperature : {0.0f, least, 1.0f, most}) {
      for (const float top_p : {least, 0.5f, 1.0f}) {
        for (const float min_p : {0.0f, least, 1.0f}) {
          Sampler sampler({.temperature = temperature,
                           .top_p = top_p,
                           .min_p = min_p,
                           .repetition_penalty = penalty,
                           .frequency_penalty = 100,
                           .logprobs = 2});
          std::vector<float> logits = row;
          const SampledToken token = sampler.sample(logits, seen, seen);
          EXPECT_GE(token.id, 1) << penalty << " " << temperature << " " << top_p << " " << min_p;
          EXPECT_LT(token.id, 6);
          EXPECT_LE(token.logprob, 0);
        }
      }
    }
  }
}

TEST(Sampling, AMaskThatLeavesOnlyWhatIsImpossibleAllowsNone) {
  const std::vector<uint32_t> allowed = {0b101};
  std::vector<float> logits = {-kInfinity, 1, -kInfinity};
  for (const float temperature : {0.0f, 1.0f}) {
    std::vector<float> row = logits;
    EXPECT_THROW(Sampler({.temperature = temperature}).sample(row, {}, {}, allowed), Error);
  }
}

TEST(Sampling, OnlyAllowedTokensAreChosenAndProbabilitiesStayTheModels) {
  const std::vector<uint32_t> allowed = {0b11001};  // 0, 3 and 4
  for (const SamplingParams& params :
       {SamplingParams{.logprobs = 2}, SamplingParams{.temperature = 2, .seed = 5, .logprobs = 2},
        SamplingParams{.temperature = 1, .top_k = 2, .min_p = 0.01f, .logprobs = 0},
        SamplingParams{.temperature = 1, .top_p = 0.9f}}) {
    Sampler sampler(params);
    std::set<int32_t> seen;
    for (int i = 0; i < 200; ++i) {
      std::vector<float> logits = kLogits;
      const SampledToken token = sampler.sample(logits, {}, {}, allowed);
      seen.insert(token.id);
      if (params.logprobs < 0) continue;
      EXPECT_NEAR(token.logprob, kLogits[static_cast<size_t>(token.id)] - log_sum_exp(kLogits),
                  1e-6);
      if (params.logprobs > 0) {
        EXPECT_EQ(token.top[0].id, 1) << "not allowed, yet the likeliest";
      }
    }
    for (int32_t id : seen) EXPECT_TRUE(id == 0 || id == 3 || id == 4) << id;
    EXPECT_TRUE(seen.contains(4)) << "the likeliest of them";
  }
  std::vector<float> logits = kLogits;
  EXPECT_THROW(Sampler({}).sample(logits, {}, {}, std::vector<uint32_t>{0}), Error);
}

TEST(Sampling, DrawsFollowTheSoftmax) {
  for (const float temperature : {0.5f, 1.0f, 2.0f}) {
    const auto seen = frequencies({.temperature = temperature, .seed = 7});
    const auto expected = softmax(temperature);
    for (size_t i = 0; i < expected.size(); ++i) {
      // Five standard deviations of a binomial share.
      const double slack = 5 * std::sqrt(expected[i] * (1 - expected[i]) / 20000);
      const auto it = seen.find(static_cast<int32_t>(i));
      EXPECT_NEAR(it == seen.end() ? 0 : it->second, expected[i], slack) << i;
    }
  }
}

TEST(Sampling, FiltersKeepTheRightTokens) {
  const auto ids = [](const SamplingParams& params) {
    std::set<int32_t> out;
    for (const auto& [id, share] : frequencies(params)) out.insert(id);
    return out;
  };
  EXPECT_EQ(ids({.temperature = 1, .top_k = 2}), (std::set<int32_t>{1, 4}));
  // The most likely has 0.44, the second 0.27: together 0.71.
  EXPECT_EQ(ids({.temperature = 1, .top_p = 0.4f}), (std::set<int32_t>{1}));
  EXPECT_EQ(ids({.temperature = 1, .top_p = 0.6f}), (std::set<int32_t>{1, 4}));
  // exp(1 - 2) = 0.37 of the best, exp(0 - 2) = 0.14.
  EXPECT_EQ(ids({.temperature = 1, .min_p = 0.3f}), (std::set<int32_t>{1, 2, 4}));
}

TEST(Sampling, SameSeedSameTokens) {
  const auto draw = [](uint64_t seed) {
    Sampler sampler({.temperature = 1, .seed = seed});
    std::vector<int32_t> ids;
    for (int i = 0; i < 50; ++i) {
      std::vector<float> logits = kLogits;
      ids.push_back(sampler.sample(logits, {}, {}).id);
    }
    return ids;
  };
  EXPECT_EQ(draw(3), draw(3));
  EXPECT_NE(draw(3), draw(4));
}

TEST(Sampling, PenaltiesAreThoseOfTheirDefinition) {
  const std::vector<int32_t> prompt = {3}, generated = {1, 1, 4};
  const auto best = [&](SamplingParams params) {
    std::vector<float> logits = kLogits;
    return Sampler(params).sample(logits, prompt, generated).id;
  };
  EXPECT_EQ(best({.repetition_penalty = 3}), 2);    // 2/3, 1.5/3 < 1
  EXPECT_EQ(best({.frequency_penalty = 0.4f}), 1);  // 2 - 0.8 = 1.2 > 1.1 > 1
  EXPECT_EQ(best({.frequency_penalty = 0.6f}), 2);  // 0.8, 0.9 < 1
  EXPECT_EQ(best({.presence_penalty = 0.9f}), 1);   // 1.1 > 1 > 0.6
  EXPECT_EQ(best({.presence_penalty = 1.1f}), 2);
}

TEST(Sampling, LogprobsAreOfTheModelAndSorted) {
  std::vector<float> logits = kLogits;
  const SampledToken token =
      Sampler({.presence_penalty = 5, .logprobs = 3}).sample(logits, {}, std::vector<int32_t>{1});
  EXPECT_EQ(token.id, 4) << "the penalty moves the choice";
  const auto p = softmax(1);
  EXPECT_NEAR(token.logprob, std::log(p[4]), 1e-6) << "and not the reported probability";
  ASSERT_EQ(token.top.size(), 3u);
  EXPECT_EQ(token.top[0].id, 1);
  EXPECT_NEAR(token.top[0].logprob, std::log(p[1]), 1e-6);
  EXPECT_EQ(token.top[1].id, 4);
  EXPECT_EQ(token.top[2].id, 2);
}

TEST(Sampling, BadParametersAreNamed) {
  for (const SamplingParams& bad : {SamplingParams{.temperature = -1},
                                    {.temperature = NAN},
                                    {.top_k = -2},
                                    {.top_p = 0},
                                    {.top_p = 1.5f},
                                    {.min_p = -0.1f},
                                    {.repetition_penalty = 0},
                                    {.logprobs = 5000}}) {
    EXPECT_THROW(check(bad), Error);
  }
}

}  // namespace
}  // namespace braid
