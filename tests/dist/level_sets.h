#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "braid/parallel/attention/key_levels.h"
#include "braid/parallel/attention/lower_attention.h"

// Cases of level attention, the sets of keys that an oracle of its own names, and the closed form
// of what is sent.
namespace braid::testing_sp {

struct LevelCase {
  int P = 2;
  int64_t tokens = 40;
  int64_t cached = 0;
  std::vector<double> keep = {0.5};
  std::vector<int> groups;
  int64_t scoring = 5, sinks = 2, recent = 3;
  std::string strategy = "sequence_parallel";
  Importance importance = Importance::own;
  bool drop_queries = false;
  int machines = 1;    // that divide the P ranks
  bool alone = false;  // a rank has all tokens, and the parts of P ranks
  int64_t q_heads = 6, kv_heads = 2, head_dim = 8;
  DType dtype = DType::f32;
  float scale = 0.8f;
  int fewer = 0;  // ranks that compute the parts of P; 0: P

  int ranks() const { return alone ? 1 : fewer > 0 ? fewer : P; }
};

inline std::string to_string(const LevelCase& c) {
  return fmt::format(
      "{} tokens behind {} on {}{} ranks of {} machines, {}/{} heads, groups {}, keep {}, {}{}",
      c.tokens, c.cached, c.ranks() < c.P ? fmt::format("{} of ", c.ranks()) : "", c.P, c.machines,
      c.q_heads, c.kv_heads, fmt::join(c.groups, ","), fmt::join(c.keep, ","),
      braid::to_string(c.importance), c.drop_queries ? ", queries dropped" : "");
}

inline SequenceAttention attention_of(const LevelCase& c) {
  SequenceAttention a{.q_heads = c.q_heads,
                      .kv_heads = c.kv_heads,
                      .head_dim = c.head_dim,
                      .dtype = c.dtype,
                      .scale = c.scale,
                      .window_right = 0};
  a.q = even_zigzag_layout(c.tokens, c.ranks(), c.cached);
  a.kv = even_layout(c.cached, c.ranks());
  for (size_t r = 0; r < a.kv.ranks.size(); ++r) {
    for (const SequenceRun& run : a.q.ranks[r]) a.kv.ranks[r].push_back(run);
  }
  a.levels = key_levels(c.keep, c.groups, c.P);
  a.levels->importance = c.importance;
  a.levels->drop_queries = c.drop_queries;
  a.levels->scoring = c.scoring;
  a.levels->sinks = c.sinks;
  a.levels->recent = c.recent;
  return a;
}

// What an implementation may get wrong, and the oracle too, so that a test sees the difference.
enum class Fault {
  none,
  nested_segments,   // a near key counts in each level that holds it
  raw_denominators,  // levels are mixed without their maxima
  base_2,            // maxima are taken for logarithms to base 2
  no_last_query,     // a part's last query does not score
  next_ring,         // a ring has the share of the next
  sums,              // importance is no mean
  one_set,           // all KV heads have the set of the first
  unspared_query,    // the last query of a part is dropped, too
};

// Whether each query sees each key, [query, key] from position 0 on, of a KV head. Written from the
// definition: a part is a run of positions, and a key's place among its part's is counted. With
// Importance::previous it is the third attention, behind two others of which the first is dense.
class LevelSets {
 public:
  // Scores of a query (its position), a key and a query head.
  using Score = std::function<double(int64_t query, int64_t key, int64_t head)>;

  LevelSets(const SequenceAttention& a, const LevelCase& c, Score score, int64_t kv_head,
            Fault fault = Fault::none, int before = 2)
      : a_(a),
        c_(c),
        score_(std::move(score)),
        kv_head_(fault == Fault::one_set ? 0 : kv_head),
        fault_(fault) {
    if (c.importance == Importance::previous) {
      dense_ = before == 0;
      if (!dense_) before_ = std::make_unique<LevelSets>(a, c, score_, kv_head, fault, before - 1);
    }
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
    size_t ring = ring_of(query, key);
    if (ring == 0 || dense_) return true;
    if (drops(query, ring - 1)) return false;
    if (fault_ == Fault::next_ring) ring = std::min(ring + 1, a_.levels->groups.size());
    const double share = a_.levels->keep[ring - 1] * static_cast<double>(part(key).rows);
    return static_cast<double>(place(key)) < share;
  }
  // 0: the query's own part, or cached; else the level + 1.
  size_t ring_of(int64_t query, int64_t key) const {
    if (key < c_.cached || part(query).begin == part(key).begin) return 0;
    const Part &mine = part(query), &other = part(key);
    const std::vector<int>& groups = a_.levels->groups;
    size_t level = groups.size() - 1;
    for (size_t v = groups.size(); mine.half == other.half && v-- > 0;) {
      if (mine.rank / groups[v] == other.rank / groups[v]) level = v;
    }
    return level + 1;
  }

 private:
  struct Part {
    int half, rank;
    int64_t begin, rows;
  };
  const Part& part(int64_t position) const {
    return parts_[static_cast<size_t>(position - c_.cached)];
  }
  bool drops(int64_t query, size_t level) {
    if (!c_.drop_queries) return false;
    const Part& p = part(query);
    if (fault_ == Fault::unspared_query && query == p.begin + p.rows - 1) return true;
    const int64_t spared = c_.recent + (p.begin == 0 ? c_.sinks : 0);
    const double share = a_.levels->keep[level] * static_cast<double>(p.rows);
    return static_cast<double>(place(query)) >= std::max(share, static_cast<double>(spared));
  }
  // How many keys of its part come before a key.
  int64_t place(int64_t key) {
    const auto [known, is_new] = places_.emplace(key, 0);
    if (is_new) known->second = count_before(key);
    return known->second;
  }
  int64_t count_before(int64_t key) {
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
  // Positions of the queries that score a part: its last ones, or those of the last part with any.
  std::vector<int64_t> scoring(const Part& p) const {
    const Part& by = c_.importance == Importance::probe ? parts_.back() : p;
    std::vector<int64_t> queries(static_cast<size_t>(std::min(c_.scoring, by.rows)));
    std::iota(queries.begin(), queries.end(), by.begin + by.rows - std::ssize(queries));
    if (fault_ == Fault::no_last_query) queries.pop_back();
    return queries;
  }
  double importance(const Part& p, int64_t at) {
    double& known = importance_.emplace(p.begin + at, -1).first->second;
    if (known >= 0) return known;
    if (before_) return known = paid_before(p.begin + at);
    double sum = 0;
    int64_t queries = 0;
    for (int64_t query : scoring(p)) {
      const int64_t seen = std::min(query + 1, p.begin + p.rows);
      if (p.begin + at >= seen) continue;
      ++queries;
      for (int64_t g = 0; g < a_.group(); ++g) {
        const int64_t head = kv_head_ * a_.group() + g;
        double all = 0;
        for (int64_t key = p.begin; key < seen; ++key) all += std::exp(score_(query, key, head));
        sum += std::exp(score_(query, p.begin + at, head)) / all;
      }
    }
    if (fault_ == Fault::sums || queries == 0) return known = sum;
    return known = sum / static_cast<double>(queries);
  }

  double denominator(int64_t query, int64_t head) {
    const auto [known, is_new] = denominators_.emplace(std::pair{query, head}, 0);
    for (int64_t key = 0; is_new && key <= query; ++key) {
      if (sees(query, key)) known->second += std::exp(score_(query, key, head));
    }
    return known->second;
  }

  // The mean of what the last queries of all parts that saw a key paid it in the attention before.
  double paid_before(int64_t at) {
    double sum = 0;
    int64_t queries = 0;
    for (int64_t query = at; query < c_.cached + c_.tokens; ++query) {
      const Part& p = part(query);
      if (query < p.begin + p.rows - std::min(c_.scoring, p.rows)) continue;
      if (!before_->sees(query, at)) continue;
      ++queries;
      for (int64_t head = kv_head_ * a_.group(); head < (kv_head_ + 1) * a_.group(); ++head) {
        sum += std::exp(score_(query, at, head)) / before_->denominator(query, head);
      }
    }
    return sum / static_cast<double>(queries);
  }

  const SequenceAttention& a_;
  const LevelCase& c_;
  const Score score_;
  const int64_t kv_head_;
  const Fault fault_;
  bool dense_ = false;
  std::unique_ptr<LevelSets> before_;
  std::vector<Part> parts_;  // [tokens]
  std::map<int64_t, double> importance_;
  std::map<int64_t, int64_t> places_;
  std::map<std::pair<int64_t, int64_t>, double> denominators_;
};

// What ranks send each other, in elements.
struct LevelTraffic {
  int64_t keys = 0;  // and values
  int64_t scores = 0;
  int64_t queries = 0;
};
inline LevelTraffic level_traffic(const LevelCase& c, const SequenceAttention& a) {
  if (c.alone) return {};
  std::vector<int64_t> cached;
  for (int r = 0; r < c.ranks(); ++r) cached.push_back(even_part(c.cached, c.ranks(), r).size());
  const int64_t row = 2 * a.kv_heads * a.head_dim;
  LevelTraffic out{.keys = pulled_rows(*a.levels, a.q, cached) * row};
  if (c.importance == Importance::previous) {  // of three attentions; and scores come back
    const std::vector<int64_t> none(cached.size());
    const KeyLevels dense = keeping_all(*a.levels);
    out.keys += (pulled_rows(*a.levels, a.q, cached) + pulled_rows(dense, a.q, cached)) * row;
    out.scores =
        a.kv_heads * (2 * pulled_rows(*a.levels, a.q, none) + pulled_rows(dense, a.q, none));
  }
  if (c.importance == Importance::probe) {  // the last part's queries go to each other rank
    const int64_t rows = std::min(c.scoring, even_part(c.tokens, c.P, 0).size() / 2);
    out.queries = (c.ranks() - 1) * rows * a.q_heads * a.head_dim;
  }
  return out;
}

}  // namespace braid::testing_sp
