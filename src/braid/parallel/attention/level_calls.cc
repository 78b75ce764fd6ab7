#include "braid/parallel/attention/level_calls.h"

#include <algorithm>

namespace braid {
namespace {

void join(std::vector<ops::KvSegment>& keys, const ops::KvSegment& next, int far) {
  if (!keys.empty()) {
    ops::KvSegment& last = keys.back();
    const bool behind = last.kv == next.kv && last.row + last.rows == next.row;
    if (behind && (next.kv == far || last.position + last.rows == next.position)) {
      last.rows += next.rows;
      return;
    }
  }
  keys.push_back(next);
}

std::vector<ops::KvSegment> joined_keys(const ops::SegmentAttentionAttrs& whole,
                                        const ops::QSegment& q, int far) {
  std::vector<ops::KvSegment> keys;
  for (int i = q.kv_begin; i < q.kv_end; ++i) join(keys, whole.kv[i], far);
  return keys;
}

ops::SegmentAttentionAttrs without_segments(ops::SegmentAttentionAttrs call) {
  call.q.clear();
  call.kv.clear();
  return call;
}

void append(ops::SegmentAttentionAttrs& call, ops::QSegment q,
            const std::vector<ops::KvSegment>& keys) {
  q.kv_begin = static_cast<int>(call.kv.size());
  call.kv.insert(call.kv.end(), keys.begin(), keys.end());
  q.kv_end = static_cast<int>(call.kv.size());
  call.q.push_back(q);
}

}  // namespace

std::vector<ops::SegmentAttentionAttrs> level_calls(const ops::SegmentAttentionAttrs& whole,
                                                    int far, int64_t most) {
  std::vector<ops::SegmentAttentionAttrs> calls;
  for (auto& made : level_calls(std::vector{whole}, far, most)) {
    calls.push_back(std::move(made[0]));
    int64_t row = 0;
    for (ops::QSegment& q : calls.back().q) {
      if (!whole.carries_state()) q.state_row = row;
      row += q.rows;
    }
  }
  return calls;
}

std::vector<std::vector<ops::SegmentAttentionAttrs>> level_calls(
    const std::vector<ops::SegmentAttentionAttrs>& ranks, int far, int64_t most) {
  std::vector<std::vector<ops::SegmentAttentionAttrs>> calls;
  size_t queries = 0;
  for (const auto& whole : ranks) queries = std::max(queries, whole.q.size());
  for (size_t i = 0; i < queries || calls.empty(); ++i) {
    std::vector<std::vector<ops::KvSegment>> keys;
    bool fits = !calls.empty();
    for (size_t r = 0; r < ranks.size(); ++r) {
      const auto& of = ranks[r].q;
      keys.push_back(i < of.size() ? joined_keys(ranks[r], of[i], far)
                                   : std::vector<ops::KvSegment>());
      fits = fits && std::ssize(calls.back()[r].kv) + std::ssize(keys[r]) <= most;
    }
    if (!fits) {
      calls.emplace_back();
      for (const auto& whole : ranks) calls.back().push_back(without_segments(whole));
    }
    for (size_t r = 0; r < ranks.size(); ++r) {
      if (i < ranks[r].q.size()) append(calls.back()[r], ranks[r].q[i], keys[r]);
    }
  }
  return calls;
}

int64_t state_rows(const std::vector<ops::SegmentAttentionAttrs>& calls) {
  int64_t most = 1;
  for (const ops::SegmentAttentionAttrs& call : calls) {
    for (const ops::QSegment& q : call.q) most = std::max(most, q.state_row + q.rows);
  }
  return most;
}

}  // namespace braid
