// Level attention on a world of threads: keeping all keys it is dense attention, and else attention
// to the sets of keys that an oracle of its own names.
#include <numeric>

#include "braid/parallel/attention/key_levels.h"
#include "dist/sequence_world.h"

namespace braid::testing_sp {
namespace {

struct LevelCase {
  int P = 2;
  int64_t tokens = 40;
  int64_t cached = 0;
  std::vector<double> keep = {0.5};
  std::vector<int> groups;
  int64_t scoring = 5, sinks = 2, recent = 3;
  std::string strategy = "sequence_parallel";
};

std::string to_string(const LevelCase& c) {
  return fmt::format("{} tokens behind {} on {} ranks, groups {}, keep {}", c.tokens, c.cached, c.P,
                     fmt::join(c.groups, ","), fmt::join(c.keep, ","));
}

SequenceAttention attention_of(const LevelCase& c) {
  SequenceAttention a{.q_heads = 6, .kv_heads = 2, .head_dim = 8, .scale = 0.8f, .window_right = 0};
  a.q = even_zigzag_layout(c.tokens, c.P, c.cached);
  a.kv = even_layout(c.cached, c.P);
  for (size_t r = 0; r < a.kv.ranks.size(); ++r) {
    for (const SequenceRun& run : a.q.ranks[r]) a.kv.ranks[r].push_back(run);
  }
  a.levels = key_levels(c.keep, c.groups, c.P);
  a.levels->scoring = c.scoring;
  a.levels->sinks = c.sinks;
  a.levels->recent = c.recent;
  return a;
}

constexpr uint64_t kSeed = 11;

double score(const SequenceAttention& a, int64_t query, int64_t key, int64_t head) {
  double s = 0;
  for (int64_t d = 0; d < a.head_dim; ++d) {
    s += double{element(kSeed, kQ, 0, query, head, d)} *
         element(kSeed, kK, 0, key, head / a.group(), d);
  }
  return s * a.scale;
}

// Whether each query sees each key, [query, key] from position 0 on, of a KV head. Written from the
// definition: a part is a run of positions, and a key's place among its part's is counted.
class Oracle {
 public:
  Oracle(const SequenceAttention& a, const LevelCase& c, int64_t kv_head)
      : a_(a), c_(c), kv_head_(kv_head) {
    int64_t at = c.cached;
    for (int half = 0; half < 2; ++half) {
      for (int i = 0; i < c.P; ++i) {
        const int rank = half == 0 ? i : c.P - 1 - i;
        const int64_t all = even_part(c.tokens, c.P, rank).size();
        const int64_t rows = half == 0 ? all - all / 2 : all / 2;
        for (int64_t n = 0; n < rows; ++n) parts_.push_back({half, rank, at, rows});
        at += rows;
      }
    }
  }

  bool sees(int64_t query, int64_t key) {
    if (key > query) return false;
    if (key < c_.cached) return true;
    const Part &mine = part(query), &other = part(key);
    if (mine.begin == other.begin) return true;
    const std::vector<int>& groups = a_.levels->groups;
    size_t level = groups.size() - 1;
    for (size_t v = groups.size(); mine.half == other.half && v-- > 0;) {
      if (mine.rank / groups[v] == other.rank / groups[v]) level = v;
    }
    const double share = a_.levels->keep[level] * static_cast<double>(other.rows);
    return static_cast<double>(place(key)) < share;
  }

 private:
  struct Part {
    int half, rank;
    int64_t begin, rows;
  };
  const Part& part(int64_t position) const {
    return parts_[static_cast<size_t>(position - c_.cached)];
  }
  // How many keys of its part come before a key.
  int64_t place(int64_t key) {
    const Part& p = part(key);
    const int64_t sinks = p.begin == 0 ? std::min(c_.sinks, p.rows) : 0;
    const int64_t at = key - p.begin;
    if (at < sinks) return at;
    const int64_t recent = std::min(c_.recent, p.rows - sinks);
    if (at >= p.rows - recent) return sinks + p.rows - 1 - at;
    int64_t before = sinks + recent;
    for (int64_t other = sinks; other < p.rows - recent; ++other) {
      const double mine = importance(p, at), its = importance(p, other);
      before += its > mine || (its == mine && other < at);
    }
    return before;
  }
  double importance(const Part& p, int64_t at) {
    double& known = importance_.emplace(p.begin + at, -1).first->second;
    if (known >= 0) return known;
    double sum = 0;
    int64_t queries = 0;
    for (int64_t t = std::max(at, p.rows - c_.scoring); t < p.rows; ++t, ++queries) {
      for (int64_t g = 0; g < a_.group(); ++g) {
        const int64_t head = kv_head_ * a_.group() + g;
        double all = 0;
        for (int64_t j = 0; j <= t; ++j) all += std::exp(score(a_, p.begin + t, p.begin + j, head));
        sum += std::exp(score(a_, p.begin + t, p.begin + at, head)) / all;
      }
    }
    return known = sum / static_cast<double>(queries);
  }

  const SequenceAttention& a_;
  const LevelCase& c_;
  const int64_t kv_head_;
  std::vector<Part> parts_;  // [tokens]
  std::map<int64_t, double> importance_;
};

// Attention of a query over the keys that `sees` names, [D], and the mass of the dense softmax that
// lies on the others.
template <class Sees>
std::pair<std::vector<double>, double> attend(const SequenceAttention& a, int64_t query,
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

double distance(const std::vector<double>& x, const std::vector<double>& y) {
  double sum = 0;
  for (size_t i = 0; i < x.size(); ++i) sum += (x[i] - y[i]) * (x[i] - y[i]);
  return std::sqrt(sum);
}

// The largest distance of two values of a KV head.
double diameter(const SequenceAttention& a, int64_t keys, int64_t kv_head) {
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

std::vector<double> row_of(const SequenceAttention& a, const std::vector<float>& o, int64_t row,
                           int64_t head) {
  const auto begin = o.begin() + (row * a.q_heads + head) * a.head_dim;
  return {begin, begin + a.head_dim};
}

WorldResult run(const LevelCase& c, const SequenceAttention& a) {
  const SequenceMesh mesh = sequence_mesh(SpMode::ring, {.devices = c.P}, a.q_heads);
  return run_world(a, mesh, {.strategy = c.strategy, .threads = 2, .seed = kSeed});
}

void expect_thinned(const LevelCase& c) {
  SCOPED_TRACE(to_string(c));
  const SequenceAttention a = attention_of(c);
  const WorldResult got = run(c, a);
  double furthest = 0;
  int64_t kept = 0;
  for (int64_t kv_head = 0; kv_head < a.kv_heads; ++kv_head) {
    Oracle oracle(a, c, kv_head);
    const auto sees = [&](int64_t query, int64_t key) { return oracle.sees(query, key); };
    const double diam = diameter(a, c.cached + c.tokens, kv_head);
    for (int rank = 0; rank < c.P; ++rank) {
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
  std::vector<int64_t> cached;
  int64_t moved = 0;
  for (int r = 0; r < c.P; ++r) {
    cached.push_back(even_part(c.cached, c.P, r).size());
    moved += bytes(got.traffic[static_cast<size_t>(r)], LinkClass::machine);
  }
  EXPECT_EQ(moved, pulled_rows(*a.levels, a.q, cached) * 2 * a.kv_heads * a.head_dim * 4);
}

TEST(KeyLevels, KeepingAllIsDense) {
  for (int P : {2, 3, 4, 8}) {
    for (int64_t tokens : {int64_t{P}, int64_t{3 * P + 1}, int64_t{50}}) {
      for (int64_t cached : {0, 1, 23}) {
        const LevelCase c{.P = P, .tokens = tokens, .cached = cached, .keep = {1}};
        SCOPED_TRACE(to_string(c));
        const SequenceAttention a = attention_of(c);
        expect_exact(a, run(c, a), kSeed);
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
  EXPECT_TRUE(has(refusal({0.3, 0.2}, {}, 4), "--keep has 2 shares"));
  EXPECT_TRUE(has(refusal({0.3}, {2, 3}, 3), "--levels 2,3: groups of 2 ranks in groups of 3"));
  EXPECT_TRUE(has(refusal({0.3}, {2}, 4), "the last group has 2 of 4 ranks"));
  EXPECT_EQ(refusal({0.5}, {2, 8}, 8), "");
  EXPECT_EQ(key_levels({0.5}, {2, 8}, 8).keep, (std::vector<double>{0.5, 0.125}));
}

}  // namespace
}  // namespace braid::testing_sp
