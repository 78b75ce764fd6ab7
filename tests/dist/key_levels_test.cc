// Level attention on a world of threads: keeping all keys it is dense attention, and else attention
// to the sets of keys that an oracle of its own names.
#include "dist/level_run.h"

namespace braid::testing_sp {
namespace {

// Other numbers of ranks and heads, and ranks on several machines.
TEST(KeyLevels, KeepingAllIsDenseOnEveryMesh) {
  for (const auto& [P, machines] : {std::pair{4, 2}, {8, 2}, {5, 1}, {6, 1}, {6, 3}, {7, 1}}) {
    for (const auto& [q_heads, kv_heads] : {std::pair{8, 8}, {7, 1}}) {
      for (Importance importance : {Importance::own, Importance::probe, Importance::previous}) {
        expect_dense({.P = P,
                      .tokens = 5 * P + 2,
                      .cached = importance == Importance::own ? 0 : 9,
                      .keep = {1},
                      .importance = importance,
                      .machines = machines,
                      .q_heads = q_heads,
                      .kv_heads = kv_heads});
        if (testing::Test::HasFatalFailure()) return;
      }
    }
  }
}

TEST(KeyLevels, KeepingAllIsDense) {
  for (int P : {2, 3, 4, 8}) {
    for (int64_t tokens : {int64_t{P}, int64_t{3 * P + 1}, int64_t{50}}) {
      for (int64_t cached : {0, 1, 23}) {
        expect_dense_by_all({.P = P, .tokens = tokens, .cached = cached});
        if (testing::Test::HasFatalFailure()) return;
      }
    }
  }
}

TEST(KeyLevels, EqualsTheOracle) {
  expect_thinned({});
  expect_thinned({.P = 3, .tokens = 50, .keep = {0.3}});
  expect_thinned({.P = 4, .tokens = 57, .keep = {0.6, 0.25}, .groups = {2, 4}});
  expect_thinned({.P = 4, .tokens = 64, .cached = 21, .keep = {0.5}, .groups = {2, 4}});
  expect_thinned({.P = 8, .tokens = 83, .cached = 3, .keep = {0.9, 0.4, 0.2}, .groups = {2, 4, 8}});
  expect_thinned({.P = 2, .tokens = 41, .keep = {0.2}, .sinks = 0, .recent = 0});
  expect_thinned({.P = 2, .tokens = 60, .keep = {0.1}, .scoring = 1, .strategy = "sequential"});
  expect_thinned({.P = 2, .tokens = 41, .keep = {0.4}, .importance = Importance::probe});
  expect_thinned({.P = 4,
                  .tokens = 57,
                  .cached = 21,
                  .keep = {0.6, 0.25},
                  .groups = {2, 4},
                  .scoring = 3,
                  .strategy = "sequential",
                  .importance = Importance::probe});
  expect_thinned({.P = 2, .tokens = 41, .keep = {0.4}, .importance = Importance::previous});
  expect_thinned({.P = 4,
                  .tokens = 57,
                  .cached = 21,
                  .keep = {0.6, 0.25},
                  .groups = {2, 4},
                  .importance = Importance::previous});
  expect_thinned({.P = 2, .tokens = 41, .keep = {0.4}, .drop_queries = true});
  expect_thinned({.P = 4,
                  .tokens = 77,
                  .cached = 21,
                  .keep = {0.6, 0.25},
                  .groups = {2, 4},
                  .strategy = "sequential",
                  .drop_queries = true});
  expect_thinned({.P = 3,
                  .tokens = 50,
                  .keep = {0.5},
                  .scoring = 3,
                  .importance = Importance::previous,
                  .drop_queries = true});
  // The last part's queries are in the order of its keys: no probe sees a later key.
  for (const bool alone : {false, true}) {
    expect_thinned({.P = 3,
                    .tokens = 121,
                    .keep = {0.5},
                    .scoring = 12,
                    .importance = Importance::probe,
                    .drop_queries = true,
                    .alone = alone});
  }
}

// A rank alone, with the parts of several ranks: two calls and more from 10 parts on.
TEST(KeyLevels, ARankAloneThinsItsOwnKeys) {
  for (int P : {2, 3, 8, 16}) {
    for (int64_t cached : {0, 23}) {
      const int64_t tokens = 7 * P + 3;
      expect_dense_by_all({.P = P, .tokens = tokens, .cached = cached, .alone = true});
      if (testing::Test::HasFatalFailure()) return;
      expect_thinned({.P = P, .tokens = tokens, .cached = cached, .keep = {0.5}, .alone = true});
    }
  }
  expect_thinned({.P = 8,
                  .tokens = 83,
                  .cached = 3,
                  .keep = {0.9, 0.4, 0.2},
                  .groups = {2, 4, 8},
                  .alone = true});
  for (const bool drops : {false, true}) {
    for (Importance importance : {Importance::own, Importance::probe, Importance::previous}) {
      expect_thinned({.P = 4,
                      .tokens = 77,
                      .cached = 21,
                      .keep = {0.6, 0.25},
                      .groups = {2, 4},
                      .scoring = 3,
                      .strategy = "sequential",
                      .importance = importance,
                      .drop_queries = drops,
                      .alone = true});
    }
  }
}

// The attention of a query as a faulty implementation computes it.
std::vector<double> attend_wrongly(const SequenceAttention& a, int64_t query, int64_t head,
                                   Oracle& oracle, Fault fault) {
  const size_t rings = a.levels->groups.size() + 1;
  std::vector<double> top(rings, -INFINITY);
  for (int64_t key = 0; key <= query; ++key) {
    if (!oracle.sees(query, key)) continue;
    double& most = top[oracle.ring_of(query, key)];
    most = std::max(most, score(a, query, key, head));
  }
  std::vector<double> o(static_cast<size_t>(a.head_dim));
  double sum = 0;
  for (int64_t key = 0; key <= query; ++key) {
    if (!oracle.sees(query, key)) continue;
    const size_t ring = oracle.ring_of(query, key);
    double p = std::exp(score(a, query, key, head));
    if (fault == Fault::nested_segments) p *= static_cast<double>(rings - ring);
    if (fault == Fault::raw_denominators) p *= std::exp(-top[ring]);
    if (fault == Fault::base_2) p *= std::exp(-top[ring]) * std::exp2(top[ring]);
    sum += p;
    for (int64_t d = 0; d < a.head_dim; ++d) {
      o[static_cast<size_t>(d)] += p * element(kSeed, kV, 0, key, head / a.group(), d);
    }
  }
  for (double& x : o) x /= sum;
  return o;
}

void tell_faults_apart(const LevelCase& c) {
  SCOPED_TRACE(to_string(c));
  const SequenceAttention a = attention_of(c);
  const WorldResult got = run(c, a);
  for (Fault fault : {Fault::none, Fault::nested_segments, Fault::raw_denominators, Fault::base_2,
                      Fault::no_last_query, Fault::next_ring, Fault::sums, Fault::one_set,
                      Fault::unspared_query}) {
    if (fault == Fault::unspared_query && !c.drop_queries) continue;
    double furthest = 0;
    for (int64_t head = 0; head < a.q_heads; ++head) {
      Oracle oracle(a, c, head / a.group(), fault);
      for (int rank = 0; rank < std::ssize(a.q.ranks); ++rank) {
        int64_t row = 0;
        for (int64_t position : positions_of(a.q, rank)) {
          const auto o = row_of(a, got.o[static_cast<size_t>(rank)], row++, head);
          furthest =
              std::max(furthest, distance(o, attend_wrongly(a, position, head, oracle, fault)));
        }
      }
    }
    if (fault == Fault::none) {
      EXPECT_LT(furthest, 1e-5);
    } else {
      EXPECT_GT(furthest, 1e-2) << "fault " << static_cast<int>(fault);
    }
  }
}

TEST(KeyLevels, TheOracleTellsFaultsApart) {
  LevelCase c{.P = 4, .tokens = 72, .keep = {0.6, 0.25}, .groups = {2, 4}};
  for (const bool drops : {false, true}) {
    c.drop_queries = drops;
    for (const bool alone : {false, true}) {
      c.alone = alone;
      tell_faults_apart(c);
    }
  }
}

TEST(KeyLevels, SharesAndGroupsAreChecked) {
  const auto refusal = [](std::vector<double> keep, std::vector<int> groups, int ranks) {
    try {
      key_levels(std::move(keep), std::move(groups), ranks);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      return std::string(error.what());
    }
    return std::string();
  };
  const auto has = [](const std::string& text, const char* part) {
    return text.find(part) < text.size();
  };
  EXPECT_TRUE(has(refusal({0}, {}, 4), "--keep is 0"));
  EXPECT_TRUE(has(refusal({1.01}, {}, 4), "--keep is 1.01"));
  EXPECT_TRUE(has(refusal({std::nan("")}, {}, 4), "--keep is nan"));
  EXPECT_TRUE(has(refusal({0.2, 0.3}, {2, 4}, 4), "rises from 0.2 to 0.3"));
  EXPECT_TRUE(has(refusal({0.3, 0.2}, {}, 4),
                  "--keep has 2 shares, wanted 1 to 1: one for each level of --levels"));
  EXPECT_TRUE(has(refusal({0.3}, {2, 3}, 3), "--levels 2,3: groups of 2 ranks in groups of 3"));
  EXPECT_TRUE(has(refusal({0.3}, {2}, 4), "the last group has 2 of 4 ranks"));
  EXPECT_TRUE(has(refusal({0.3}, {6}, 4), "the last group has 6 of 4 ranks"));
  EXPECT_EQ(refusal({0.3}, {2, 8}, 4), "") << "the parts of eight ranks on four";
  EXPECT_THROW(parse_importance("best"), Error);
  EXPECT_EQ(refusal({0.5}, {2, 8}, 8), "");
  EXPECT_EQ(key_levels({0.5}, {2, 8}, 8).keep, (std::vector<double>{0.5, 0.125}));
}

}  // namespace
}  // namespace braid::testing_sp
