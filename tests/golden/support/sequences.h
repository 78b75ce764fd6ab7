#pragma once

#include <gtest/gtest.h>

#include "braid/engine/runner.h"
#include "golden/support/forward.h"
#include "golden/support/golden.h"

// Steps of several sequences, for runners that are to agree.
namespace braid::golden {

inline std::vector<int32_t> ids(int64_t n, int32_t salt) {
  std::vector<int32_t> all;
  for (int32_t i = 0; i < n; ++i) all.push_back((i * 37 + salt * 11) % 250);
  return all;
}

// A sequence on pages of its own.
struct Sequence {
  std::vector<int32_t> pages;
  int64_t cached = 0;

  void add(Batch& batch, int64_t n, int group = -1) {
    batch.add(ids(n, static_cast<int32_t>(cached + pages[0])), cached, pages, n, group);
    cached += n;
  }
};

inline void expect_alike(Runner& ranks, Runner& one, const Batch& batch, double tolerance) {
  Rows got, want;
  append_rows(ranks.run(batch), got);
  append_rows(one.run(batch), want);
  ASSERT_EQ(got.size(), want.size());
  for (size_t r = 0; r < got.size(); ++r) {
    ASSERT_LT(relative_distance(got[r], want[r]), tolerance) << "row " << r;
  }
}

// Three sequences, of which one has fewer keys than ranks, join, go on and leave, in steps of
// several tokens of each. One leaves its pages to the next.
inline void join_and_leave(const std::function<void(const Batch&)>& run) {
  std::vector<Sequence> sequences{{{9, 3, 30}}, {{1, 2, 5}}, {{60, 61, 62}}};
  Batch batch(kPageSize);
  const auto step = [&](const std::vector<std::pair<size_t, int64_t>>& tokens) {
    batch.clear();
    for (const auto& [s, n] : tokens) sequences[s].add(batch, n);
    run(batch);
  };
  step({{0, 30}});
  step({{1, 1}});
  step({{2, 17}});
  for (int i = 0; i < 3; ++i) step({{0, 1}, {1, 1}, {2, 1}});
  step({{1, 2}, {2, 1}});
  sequences[0] = {{9, 3, 30}};  // another sequence on its pages
  step({{0, 9}});
  step({{0, 1}, {2, 3}, {1, 1}});
  sequences[2].cached = 6;  // a conversation that goes on from an earlier point
  step({{2, 1}});
  step({{2, 11}});
}

// Turns of few tokens behind a long prefix, whose last keys lie on ranks by turns and whose last
// page is not full. Another sequence shares some steps.
inline void turns_behind_a_prefix(const std::function<void(const Batch&)>& run) {
  Sequence chat{{7, 33, 2, 12, 40, 41, 5, 18, 29, 3, 60, 11}}, other{{20, 21}};
  Batch batch(kPageSize);
  const auto step = [&](int64_t tokens, int64_t others = 0) {
    batch.clear();
    chat.add(batch, tokens);
    if (others > 0) other.add(batch, others);
    run(batch);
  };
  step(101);
  step(9);
  step(1, 13);
  for (int i = 0; i < 5; ++i) step(1);
  step(21);
  step(8);
  step(2, 1);
  chat.cached = 119;  // the conversation goes on from an earlier point, inside a page
  step(17);
}

// Sequences of ranks' own beside a divided one join and leave, prompts share steps with decodes,
// and one fills two pages. Pages up to number 14.
inline void join_ranks_and_leave(int P, const std::function<void(const Batch&)>& run) {
  struct Own {
    Sequence sequence;
    int rank;
  };
  Sequence divided{{3, 0, 1}};
  std::vector<Own> own{{{{5}}, 0}, {{{2, 14}}, 1}, {{{9}}, P - 1}};
  Batch batch(kPageSize);
  const auto step = [&](int64_t guests, const std::vector<int64_t>& tokens) {
    batch.clear();
    if (guests > 0) divided.add(batch, guests);
    for (size_t s = 0; s < tokens.size(); ++s) {
      if (tokens[s] > 0) own[s].sequence.add(batch, tokens[s], own[s].rank);
    }
    run(batch);
  };
  step(23, {});
  step(1, {4});
  step(1, {1, 9, 5});
  step(0, {1, 1, 1});
  step(1, {1, 0, 1});
  step(3, {0, 7});
  own[0].sequence = {{5}};  // another one on its page
  step(1, {6, 1, 1});
  for (int i = 0; i < 3; ++i) step(1, {1, 1, 1});
  while (own[1].sequence.cached < 2 * kPageSize) step(1, {0, 1});
}

}  // namespace braid::golden
