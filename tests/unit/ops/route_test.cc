// Choices of experts against an f64 reference that sorts, and the rows that choices make.
#include "braid/ops/route.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

namespace braid {
namespace {

using ops::GroupScore;
using ops::RouteAttrs;
using ops::RouteScore;
using ops::RouteWeight;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

struct Choice {
  std::vector<int32_t> expert;
  std::vector<float> weight;
};

Choice choose(const RouteAttrs& a, const std::vector<float>& logits,
              const std::vector<float>& bias = {}) {
  const auto k = static_cast<size_t>(a.top_k);
  Choice c{std::vector<int32_t>(k, -1), std::vector<float>(k, kNaN)};
  ops::choose_experts(a, logits, bias.empty() ? nullptr : bias.data(), c.expert.data(),
                      c.weight.data());
  return c;
}

// The same by definition: every score in f64, experts sorted by what they are chosen by.
struct Exact {
  std::vector<double> by;      // [E] what experts are chosen by, -inf in dropped groups
  std::vector<double> weight;  // [E] of an expert if it were chosen
  std::vector<int32_t> order;
  double cancelled = 1;  // by so much a sum of weights loses precision: raw scores have two signs
};

Exact exact(const RouteAttrs& a, const std::vector<float>& logits, const std::vector<float>& bias) {
  const size_t E = logits.size(), size = E / static_cast<size_t>(a.groups);
  std::vector<double> s(E);
  double sum = 0;
  for (size_t e = 0; e < E; ++e) sum += std::exp(static_cast<double>(logits[e]));
  for (size_t e = 0; e < E; ++e) {
    const double x = logits[e];
    s[e] = a.score == RouteScore::raw       ? x
           : a.score == RouteScore::sigmoid ? 1 / (1 + std::exp(-x))
                                            : std::exp(x) / sum;
  }
  Exact r{s, s, std::vector<int32_t>(E)};
  for (size_t e = 0; e < E; ++e) r.by[e] += bias.empty() ? 0 : bias[e];
  std::vector<std::pair<double, size_t>> groups;
  for (size_t g = 0; g < E / size; ++g) {
    std::vector<double> own(r.by.begin() + static_cast<int64_t>(g * size),
                            r.by.begin() + static_cast<int64_t>((g + 1) * size));
    std::ranges::sort(own, std::greater<>());
    groups.emplace_back(a.group_score == GroupScore::max || size == 1 ? own[0] : own[0] + own[1],
                        g);
  }
  std::ranges::sort(groups, std::greater<>());
  for (size_t i = static_cast<size_t>(a.kept_groups); i < groups.size(); ++i) {
    for (size_t e = 0; e < size; ++e) r.by[groups[i].second * size + e] = -INFINITY;
  }
  std::iota(r.order.begin(), r.order.end(), 0);
  std::ranges::stable_sort(r.order, [&](int32_t x, int32_t y) {
    return r.by[static_cast<size_t>(x)] > r.by[static_cast<size_t>(y)];
  });
  double total = 0, sizes = 0;
  for (int64_t j = 0; j < a.top_k; ++j) {
    const double w = s[static_cast<size_t>(r.order[static_cast<size_t>(j)])];
    total += a.weight == RouteWeight::softmax ? std::exp(w) : w;
    sizes += std::abs(w);
  }
  if (a.weight == RouteWeight::normalised) r.cancelled = sizes / std::abs(total);
  for (double& w : r.weight) {
    if (a.weight == RouteWeight::softmax) w = std::exp(w) / total;
    if (a.weight == RouteWeight::normalised) w /= total;
    w *= a.scale;
  }
  return r;
}

TEST(Route, ChoosesWhatAnF64ReferenceChooses) {
  const uint64_t seed = std::random_device{}();
  std::mt19937_64 rng(seed);
  std::normal_distribution<float> normal(0, 2);
  int compared = 0;
  for (const auto score : {RouteScore::softmax, RouteScore::sigmoid, RouteScore::raw}) {
    for (const auto weight : {RouteWeight::score, RouteWeight::normalised, RouteWeight::softmax}) {
      for (const auto& [E, k, groups, kept] :
           std::vector<std::array<int64_t, 4>>{{8, 2, 1, 1},
                                               {1, 1, 1, 1},
                                               {5, 5, 1, 1},
                                               {60, 4, 1, 1},
                                               {64, 6, 8, 3},
                                               {256, 8, 8, 4},
                                               {12, 3, 12, 5},
                                               {1024, 37, 1, 1}}) {
        for (const auto group_score : {GroupScore::max, GroupScore::two_best}) {
          for (const bool biased : {false, true}) {
            const RouteAttrs a = {.top_k = k,
                                  .score = score,
                                  .weight = weight,
                                  .scale = biased ? 2.5f : 1,
                                  .groups = groups,
                                  .kept_groups = kept,
                                  .group_score = group_score};
            std::vector<float> logits(static_cast<size_t>(E)), bias;
            for (float& x : logits) x = normal(rng);
            // Negative sums must not lose to the experts of dropped groups.
            if (biased) bias.assign(logits.size(), 0);
            for (float& x : bias) x = 0.5f * normal(rng) - 3;
            SCOPED_TRACE(fmt::format("{}, {} experts{}, seed {}", to_string(Attrs::of(a)), E,
                                     biased ? ", biased" : "", seed));
            const Exact want = exact(a, logits, bias);
            const Choice got = choose(a, logits, bias);
            const auto by = [&](int64_t j) {
              return want.by[static_cast<size_t>(want.order[static_cast<size_t>(j)])];
            };
            bool close = false;  // two scores that f32 may exchange
            for (int64_t j = 0; j < std::min(k + 1, E) - 1; ++j) {
              close |= by(j) - by(j + 1) < 1e-6 * std::max(1.0, std::abs(by(j)));
            }
            if (close) continue;
            ++compared;
            for (int64_t j = 0; j < k; ++j) {
              const auto i = static_cast<size_t>(j);
              ASSERT_EQ(got.expert[i], want.order[i]) << j;
              const double w = want.weight[static_cast<size_t>(want.order[i])];
              ASSERT_NEAR(got.weight[i], w, 4e-6 * want.cancelled * std::max(1.0, std::abs(w)))
                  << j;
            }
          }
        }
      }
    }
  }
  EXPECT_GT(compared, 100);
}

TEST(Route, EqualScoresGoToTheLowerExpert) {
  EXPECT_THAT(choose({.top_k = 3}, {1, 2, 2, 1, 2, 1}).expert, ElementsAre(1, 2, 4));
  EXPECT_THAT(choose({.top_k = 2, .groups = 3, .kept_groups = 1}, {0, 1, 1, 0, 1, 0}).expert,
              ElementsAre(1, 0));
}

TEST(Route, WhatIsNoNumberIsChosenLast) {
  const Choice c = choose({.top_k = 2, .weight = RouteWeight::score}, {kNaN, -50, kNaN, -60});
  EXPECT_THAT(c.expert, ElementsAre(1, 3));
  EXPECT_NEAR(c.weight[0], 1, 1e-3);
  for (const auto score : {RouteScore::softmax, RouteScore::sigmoid, RouteScore::raw}) {
    for (const std::vector<float>& logits :
         {std::vector<float>(6, kNaN), std::vector<float>(6, INFINITY),
          std::vector<float>(6, -INFINITY)}) {
      for (const auto weight :
           {RouteWeight::score, RouteWeight::normalised, RouteWeight::softmax}) {
        const Choice all = choose({.top_k = 3,
                                   .score = score,
                                   .weight = weight,
                                   .groups = 3,
                                   .kept_groups = 2,
                                   .group_score = GroupScore::two_best},
                                  logits);
        std::vector<int32_t> sorted = all.expert;
        std::ranges::sort(sorted);
        EXPECT_GE(sorted.front(), 0);
        EXPECT_LT(sorted.back(), 6);
        EXPECT_EQ(std::ranges::adjacent_find(sorted), sorted.end()) << "an expert twice";
      }
    }
  }
}

// The weight is the score's own, not the difference of two large numbers.
TEST(Route, ABiasCountsForTheChoiceAlone) {
  const RouteAttrs a = {.top_k = 2, .score = RouteScore::sigmoid, .weight = RouteWeight::score};
  const Choice c = choose(a, {-18, -19, 3, 2}, {12, 12.5f, 0, 0});
  EXPECT_THAT(c.expert, ElementsAre(1, 0));
  EXPECT_FLOAT_EQ(c.weight[1], 1 / (1 + std::exp(18.0f)));
  EXPECT_GT(c.weight[0], 0);
}

TEST(Route, SigmoidsOfNothingDivideByNothing) {
  const RouteAttrs a = {.top_k = 2, .score = RouteScore::sigmoid};
  EXPECT_THAT(choose(a, {-200, -200, -200}).weight, ElementsAre(0, 0));
}

TEST(Route, RowsLieByExpertThenByToken) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(fmt::format("seed {}", seed));
  std::mt19937_64 rng(seed);
  for (const int64_t E : {1, 3, 8, 1024}) {
    for (const int64_t T : {1, 2, 17, 300}) {
      for (const bool skewed : {false, true}) {
        const int64_t k = std::min<int64_t>(E, 3);
        std::vector<int32_t> chosen;
        for (int64_t t = 0; t < T; ++t) {
          std::vector<int32_t> all(static_cast<size_t>(E));
          std::iota(all.begin(), all.end(), 0);
          if (!skewed) std::ranges::shuffle(all, rng);
          chosen.insert(chosen.end(), all.begin(), all.begin() + k);
        }
        std::vector<int32_t> place = chosen, token(chosen.size(), -1),
                             begin(static_cast<size_t>(E) + 1, -1);
        EXPECT_EQ(ops::sort_choices(T, k, {0, E}, place.data(), token.data(), begin.data()), T * k);
        EXPECT_EQ(begin.front(), 0);
        EXPECT_EQ(begin.back(), T * k);
        std::vector<bool> seen(chosen.size());
        for (size_t i = 0; i < chosen.size(); ++i) {
          const auto row = static_cast<size_t>(place[i]), e = static_cast<size_t>(chosen[i]);
          ASSERT_LT(row, seen.size());
          EXPECT_FALSE(seen[row]);
          seen[row] = true;
          EXPECT_EQ(token[row], static_cast<int32_t>(i) / k);
          EXPECT_LE(begin[e], place[i]);
          EXPECT_LT(place[i], begin[e + 1]);
        }
        // A rank's experts have the same rows in the same order, from 0 on.
        for (const Range held : {Range{0, E / 2}, Range{E / 2, E}, Range{E, E}}) {
          std::vector<int32_t> own = chosen, tokens(chosen.size(), -1), starts(begin.size(), -1);
          const int64_t rows =
              ops::sort_choices(T, k, held, own.data(), tokens.data(), starts.data());
          const int32_t first = begin[static_cast<size_t>(held.begin)];
          ASSERT_EQ(rows, begin[static_cast<size_t>(held.end)] - first);
          for (int64_t h = 0; h <= held.size(); ++h) {
            EXPECT_EQ(starts[static_cast<size_t>(h)],
                      begin[static_cast<size_t>(held.begin + h)] - first);
          }
          for (size_t i = 0; i < own.size(); ++i) {
            const bool here = held.begin <= chosen[i] && chosen[i] < held.end;
            EXPECT_EQ(own[i], here ? place[i] - first : -1);
            if (here) {
              EXPECT_EQ(tokens[static_cast<size_t>(own[i])], token[static_cast<size_t>(place[i])]);
            }
          }
        }
        for (size_t e = 0; e < static_cast<size_t>(E); ++e) {
          EXPECT_TRUE(std::is_sorted(token.begin() + begin[e], token.begin() + begin[e + 1]));
        }
      }
    }
  }
}

TEST(Route, WritesTheExtentOfItsRows) {
  Builder b("t", {.token = 6, .sequence = 1, .row = 1, .expert_row = 12});
  const ValueId logits = b.input("logits", {DType::f32, {6, 4}, BatchAxis::token});
  const ops::Route r = ops::route(b, logits, kNoValue, {.top_k = 2});
  EXPECT_EQ(to_string(b.type(r.token)), "i32[expert_row=12]");
  EXPECT_EQ(to_string(b.type(r.begin)), "i32[5]");
  const Program program = b.finish({r.weight});
  EXPECT_EQ(program.expert_rows(4), 8);
  const Op& op = program.ops[0];
  EXPECT_EQ(op.def->writes_extent, BatchAxis::expert_row);

  std::vector<float> x = {0, 1, 2, 3, 3, 2, 1, 0, 0, 0, 5, 4}, weight(12, kNaN);
  x.resize(24, kNaN);
  std::vector<int32_t> place(12, -1), token(12, -1), begin(5, -1);
  const auto view = [](auto& data, DType dtype, const Shape& shape) {
    return make_view(reinterpret_cast<std::byte*>(data.data()), dtype, shape);
  };
  const TensorView in[] = {view(x, DType::f32, {6, 4}), {}};
  const TensorView out[] = {view(weight, DType::f32, {6, 2}), view(place, DType::i32, {6, 2}),
                            view(token, DType::i32, {12}), view(begin, DType::i32, {5})};
  BatchPart part{{}, {.token = 3}};
  op.def->reference({&op, in, out, BatchAxis::token, &part});
  EXPECT_EQ(part.count.expert_row, 6);
  EXPECT_THAT(begin, ElementsAre(0, 1, 2, 4, 6));
  EXPECT_THAT(std::vector(token.begin(), token.begin() + 7), ElementsAre(1, 1, 0, 2, 0, 2, -1))
      << "tokens that pad a batch make no rows";
}

TEST(Route, RefusesWhatCannotBeChosen) {
  const auto error = [](int64_t E, const RouteAttrs& a) -> std::string {
    Builder b("t", {1, 1, 1});
    try {
      ops::route(b, b.input("x", {DType::f32, {1, E}, BatchAxis::token}), kNoValue, a);
    } catch (const Error& e) {
      return e.what();
    }
    return "no error";
  };
  EXPECT_THAT(error(8, {.top_k = 9}), HasSubstr("a token is 9, allowed are 1 to 8"));
  EXPECT_THAT(error(1025, {}), HasSubstr("1025, allowed are 1 to 1024"));
  EXPECT_THAT(error(64, {.groups = 3}), HasSubstr("64 experts in 3 groups"));
  EXPECT_THAT(error(64, {.groups = 8, .kept_groups = 9}), HasSubstr("kept groups is 9"));
  EXPECT_THAT(error(64, {.top_k = 9, .groups = 8, .kept_groups = 1}),
              HasSubstr("a token is 9, allowed are 1 to 8"));
}

}  // namespace
}  // namespace braid
