// Level attention on GPUs: attention to the sets of keys that an oracle of its own names in f64
// from the same bf16 inputs, over ranks that may share GPUs, eagerly and as replayed graphs.
#include <gtest/gtest.h>

#include <numeric>

#include "backend/cuda/sequence/sequence_world.h"
#include "dist/level_sets.h"

namespace braid::testing_sp_gpu {
namespace {

using testing_sp::level_traffic;
using testing_sp::LevelCase;
using testing_sp::LevelSets;

constexpr uint64_t kSeed = 1, kOther = 2;

// Heads of the kernels for long prompts.
LevelCase on_gpus(LevelCase c) {
  c.q_heads = 8;
  c.kv_heads = 2;
  c.head_dim = 128;
  c.dtype = DType::bf16;
  c.scale = 0.088f;
  return c;
}

Topology topology_of(const LevelCase& c) {
  return {.machines = c.machines, .devices = c.alone ? 1 : c.P / c.machines};
}

// False without GPUs. The first step is eager, the later ones replay a graph.
bool expect_thinned(const LevelCase& c) {
  SCOPED_TRACE(to_string(c));
  const Topology topology = topology_of(c);
  if (!has_gpus(topology)) return false;
  fabric::PeerFabric fabric(fabric_config(topology));
  const SequenceAttention a = attention_of(c);
  const SequenceMesh mesh = sequence_mesh(SpMode::ring, topology, a.q_heads);
  const auto got =
      run(fabric, a, mesh, {.seeds = {kSeed, kOther, kSeed, kSeed}, .strategy = c.strategy});
  for (size_t step : {1u, 3u}) {
    const uint64_t seed = step == 1 ? kOther : kSeed;
    const std::vector<double> scores = all_scores(a, seed);
    const int64_t n = a.kv.length();
    const auto score = [&](int64_t query, int64_t key, int64_t head) {
      return scores[static_cast<size_t>((head * n + query) * n + key)];
    };
    std::vector<LevelSets> sets;
    sets.reserve(static_cast<size_t>(a.kv_heads));
    for (int64_t h = 0; h < a.kv_heads; ++h) sets.emplace_back(a, c, score, h);
    expect_exact(a, got[step], seed, [&](int64_t query, int64_t key, int64_t kv_head) {
      return sets[static_cast<size_t>(kv_head)].sees(query, key);
    });
    if (testing::Test::HasFatalFailure()) return true;
  }
  for (size_t i : {2u, 3u}) EXPECT_TRUE(same_bits(got[i].o, got[0].o)) << "step " << i;
  const auto sent = level_traffic(c, a);
  EXPECT_EQ(std::accumulate(got[0].bytes.begin(), got[0].bytes.end(), int64_t{0}),
            2 * sent.keys + 4 * sent.scores + 2 * sent.queries);
  return true;
}

// All cases, or a skip at the first without GPUs.
void expect_thinned(std::vector<LevelCase> cases) {
  for (const LevelCase& c : cases) {
    if (!expect_thinned(on_gpus(c))) GTEST_SKIP() << gpus() << " GPUs";
    if (testing::Test::HasFatalFailure()) return;
  }
}

constexpr Importance kAll[] = {Importance::own, Importance::probe, Importance::previous};

TEST(LevelsOnGpus, EqualTheOracleAndRepeat) {
  std::vector<LevelCase> cases;
  for (Importance importance : kAll) {
    for (double keep : {1.0, 0.5}) {
      cases.push_back({.P = 2, .tokens = 201, .keep = {keep}, .importance = importance});
    }
    cases.push_back(
        {.P = 2, .tokens = 201, .keep = {0.4}, .importance = importance, .machines = 2});
    cases.push_back({.P = 3, .tokens = 157, .keep = {0.5}, .importance = importance});
    cases.push_back({.P = 4, .tokens = 190, .keep = {0.5}, .importance = importance});
  }
  expect_thinned(cases);
}

TEST(LevelsOnGpus, TwoLevelsOverTwoMachines) {
  for (Importance importance : kAll) {
    expect_thinned({{.P = 4,
                     .tokens = 223,
                     .keep = {0.6, 0.25},
                     .groups = {2, 4},
                     .importance = importance,
                     .machines = 2},
                    {.P = 4,
                     .tokens = 123,
                     .cached = 77,
                     .keep = {0.6, 0.25},
                     .groups = {2, 4},
                     .scoring = 3,
                     .strategy = "sequential",
                     .importance = importance,
                     .machines = 2}});
    if (testing::Test::HasFatalFailure() || testing::Test::IsSkipped()) return;
  }
}

TEST(LevelsOnGpus, BehindCachedKeys) {
  std::vector<LevelCase> cases;
  for (Importance importance : kAll) {
    for (int64_t cached : {1, 65}) {
      cases.push_back(
          {.P = 2, .tokens = 131, .cached = cached, .keep = {0.5}, .importance = importance});
    }
  }
  expect_thinned(cases);
}

TEST(LevelsOnGpus, QueriesAreDropped) {
  std::vector<LevelCase> cases;
  for (Importance importance : kAll) {
    cases.push_back({.P = 2,
                     .tokens = 201,
                     .keep = {0.4},
                     .scoring = 3,
                     .importance = importance,
                     .drop_queries = true});
    cases.push_back({.P = 4,
                     .tokens = 177,
                     .cached = 21,
                     .keep = {0.6, 0.25},
                     .groups = {2, 4},
                     .scoring = 3,
                     .strategy = "sequential",
                     .importance = importance,
                     .drop_queries = true,
                     .machines = 2});
  }
  expect_thinned(cases);
}

// The parts of 3, 8 and 16 ranks: one call of attention, two and four.
TEST(LevelsOnGpus, ARankAloneThinsItsOwnKeys) {
  std::vector<LevelCase> cases;
  struct Levels {
    std::vector<double> keep;
    std::vector<int> groups;
  };
  for (const Levels& l : std::vector<Levels>{
           {{1}, {8}}, {{0.5}, {3}}, {{0.5}, {8}}, {{0.5, 0.25}, {2, 8}}, {{0.25}, {16}}}) {
    for (Importance importance : kAll) {
      for (bool drops : {false, true}) {
        cases.push_back({.P = l.groups.back(),
                         .tokens = 301,
                         .keep = l.keep,
                         .groups = l.groups,
                         .scoring = 3,
                         .importance = importance,
                         .drop_queries = drops,
                         .alone = true});
      }
    }
  }
  expect_thinned(cases);
}

}  // namespace
}  // namespace braid::testing_sp_gpu
