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

}  // namespace

std::vector<ops::SegmentAttentionAttrs> level_calls(const ops::SegmentAttentionAttrs& whole,
                                                    int far, int64_t most) {
  std::vector<ops::SegmentAttentionAttrs> calls;
  int64_t rows = 0;  // of the last call's states
  for (ops::QSegment q : whole.q) {
    std::vector<ops::KvSegment> keys;
    for (int i = q.kv_begin; i < q.kv_end; ++i) join(keys, whole.kv[i], far);
    if (calls.empty() || std::ssize(calls.back().kv) + std::ssize(keys) > most) {
      calls.push_back(whole);
      calls.back().q.clear();
      calls.back().kv.clear();
      rows = 0;
    }
    ops::SegmentAttentionAttrs& call = calls.back();
    if (!whole.carries_state()) q.state_row = rows;
    q.kv_begin = static_cast<int>(call.kv.size());
    call.kv.insert(call.kv.end(), keys.begin(), keys.end());
    q.kv_end = static_cast<int>(call.kv.size());
    call.q.push_back(q);
    rows += q.rows;
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
