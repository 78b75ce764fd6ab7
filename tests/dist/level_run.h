#pragma once

#include <gtest/gtest.h>

#include "dist/level_oracle.h"

// Level attention on a world of threads beside its oracle.
namespace braid::testing_sp {

// Attention of a query over the keys that `sees` names, [D], and the mass of the dense softmax that
// lies on the others.
template <class Sees>
inline std::pair<std::vector<double>, double> attend(const SequenceAttention& a, int64_t query,
                                                     int64_t head, const Sees& sees) {
  std::vector<double> o(static_cast<size_t>(a.head_dim));
  double sum = 0, dropped = 0;
  for (int64_t key = 0; key <= query; ++key) {
    const double p = std::exp(score(a, query, key, head));
    if (!sees(query, key)) {
      dropped += p;
      continue;
    }
    sum += p;
    for (int64_t d = 0; d < a.head_dim; ++d) {
      o[static_cast<size_t>(d)] += p * element(kSeed, kV, 0, key, head / a.group(), d);
    }
  }
  for (double& x : o) x /= sum;
  return {o, dropped / (sum + dropped)};
}

inline double distance(const std::vector<double>& x, const std::vector<double>& y) {
  double sum = 0;
  for (size_t i = 0; i < x.size(); ++i) sum += (x[i] - y[i]) * (x[i] - y[i]);
  return std::sqrt(sum);
}

// The largest distance of two values of a KV head.
inline double diameter(const SequenceAttention& a, int64_t keys, int64_t kv_head) {
  std::vector<std::vector<double>> v;
  for (int64_t key = 0; key < keys; ++key) {
    std::vector<double>& row = v.emplace_back();
    for (int64_t d = 0; d < a.head_dim; ++d) {
      row.push_back(element(kSeed, kV, 0, key, kv_head, d));
    }
  }
  double most = 0;
  for (const auto& x : v) {
    for (const auto& y : v) most = std::max(most, distance(x, y));
  }
  return most;
}

inline std::vector<double> row_of(const SequenceAttention& a, const std::vector<float>& o,
                                  int64_t row, int64_t head) {
  const auto begin = o.begin() + (row * a.q_heads + head) * a.head_dim;
  return {begin, begin + a.head_dim};
}

inline SequenceMesh mesh_of(const LevelCase& c, const SequenceAttention& a) {
  return sequence_mesh(SpMode::ring, {.machines = c.machines, .devices = c.ranks() / c.machines},
                       a.q_heads);
}

inline WorldResult run(const LevelCase& c, const SequenceAttention& a) {
  return run_world(a, mesh_of(c, a), {.strategy = c.strategy, .threads = 2, .seed = kSeed});
}

// For a case that keeps all keys.
inline void expect_dense(const LevelCase& c) {
  SCOPED_TRACE(to_string(c));
  const SequenceAttention a = attention_of(c);
  expect_exact(a, run(c, a), kSeed);
}

// Keeps all keys, by each importance in turn; `probe` may drop queries besides.
inline void expect_dense_by_all(LevelCase c) {
  c.keep = {1};
  for (Importance importance : {Importance::own, Importance::probe, Importance::previous}) {
    c.importance = importance;
    c.drop_queries = importance == Importance::probe;
    expect_dense(c);
    if (testing::Test::HasFatalFailure()) return;
  }
}

// Pairs of a query and a key in the calls of all ranks.
inline double computed_pairs(const LevelCase& c, const SequenceAttention& a) {
  double pairs = 0;
  for (const Program& program : attention_programs(a, mesh_of(c, a))) {
    for (const Op& op : program.ops) {
      if (op.def != &ops::kSegmentAttention) continue;
      for (double phase : op.attrs.as<ops::SegmentAttentionAttrs>().pairs()) pairs += phase;
    }
  }
  return pairs;
}

inline void expect_thinned(const LevelCase& c) {
  SCOPED_TRACE(to_string(c));
  const SequenceAttention a = attention_of(c);
  const WorldResult got = run(c, a);
  double furthest = 0;
  int64_t kept = 0;
  for (int64_t kv_head = 0; kv_head < a.kv_heads; ++kv_head) {
    Oracle oracle(a, c, kv_head);
    const auto sees = [&](int64_t query, int64_t key) { return oracle.sees(query, key); };
    const double diam = diameter(a, c.cached + c.tokens, kv_head);
    for (int rank = 0; rank < std::ssize(a.q.ranks); ++rank) {
      int64_t row = 0;
      for (int64_t position : positions_of(a.q, rank)) {
        for (int64_t key = c.cached; key <= position; ++key) kept += sees(position, key);
        for (int64_t g = 0; g < a.group(); ++g) {
          const int64_t head = kv_head * a.group() + g;
          const auto [want, dropped] = attend(a, position, head, sees);
          const auto o = row_of(a, got.o[static_cast<size_t>(rank)], row, head);
          ASSERT_LT(distance(o, want), 1e-5) << "position " << position << ", head " << head;
          const auto dense = attend(a, position, head, [](int64_t, int64_t) { return true; }).first;
          ASSERT_LE(distance(o, dense), dropped * diam + 1e-5) << "position " << position;
          furthest = std::max(furthest, distance(o, dense));
        }
        ++row;
      }
    }
  }
  EXPECT_GT(furthest, 1e-2) << "nothing was dropped";
  const double pairs = static_cast<double>(kept) / static_cast<double>(a.kv_heads);
  EXPECT_NEAR(kept_pairs(*a.levels, a.q) * static_cast<double>(c.tokens * (c.tokens + 1) / 2),
              pairs, 1e-6);
  if (!c.drop_queries) {
    const double all = c.importance == Importance::previous
                           ? 2 * pairs + static_cast<double>(c.tokens * (c.tokens + 1) / 2)
                           : pairs;
    const int attentions = c.importance == Importance::previous ? 3 : 1;
    EXPECT_EQ(computed_pairs(c, a), all + static_cast<double>(attentions * c.tokens * c.cached));
  }
  int64_t moved = 0;
  for (const auto& traffic : got.traffic) {
    for (const LinkClass link : {LinkClass::machine, LinkClass::cluster}) {
      moved += bytes(traffic, link);
    }
  }
  const LevelTraffic sent = level_traffic(c, a);
  EXPECT_EQ(moved, 4 * (sent.keys + sent.scores + sent.queries));
}

}  // namespace braid::testing_sp
