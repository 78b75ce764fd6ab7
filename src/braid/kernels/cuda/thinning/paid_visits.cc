#include "braid/kernels/cuda/thinning/paid_visits.h"

#include <algorithm>

#include "braid/base/error.h"
#include "braid/base/math.h"

namespace braid::cuda {
namespace {

void verify(const ops::SegmentAttentionAttrs& a, size_t pairs) {
  if (pairs > kMostPaidPairs) {
    fail(ErrorCode::kUnsupported, "paid_keys: {} pairs of keys on a GPU, at most {}", pairs,
         kMostPaidPairs);
  }
  if (a.window_left != ops::kUnlimited || a.window_right != 0 || a.dual) {
    fail(ErrorCode::kUnsupported,
         "paid_keys: a window of {} to {} on a GPU, wanted causal attention without chunks",
         a.window_left, a.window_right);
  }
  if (a.head_offset != 0 || a.heads != a.kv_heads * a.group) {
    fail(ErrorCode::kUnsupported, "paid_keys: {} heads from {} on, {} KV heads in groups of {}",
         a.heads, a.head_offset, a.kv_heads, a.group);
  }
}

int32_t to_int(int64_t x) {
  return static_cast<int32_t>(x);
}

}  // namespace

PaidVisits paid_visits(const ops::PaidKeysAttrs& attrs, std::span<const int64_t> rows) {
  const ops::SegmentAttentionAttrs& a = attrs.segments;
  verify(a, rows.size());
  PaidVisits out;
  std::array<std::vector<ScoringVisit>, kMostPaidPairs> visits;
  for (const ops::QSegment& q : a.q) {
    if (q.rows == 0) continue;
    ScoringRun run{.q_row = to_int(q.row), .queries = to_int(q.rows), .sums = out.sums};
    for (int i = q.kv_begin; i < q.kv_end; ++i) {
      const ops::KvSegment& kv = a.kv[i];
      const int64_t last = a.visible(q.position + q.rows - 1, kv).size();
      if (last == 0) continue;
      const int64_t sees = std::min(kv.rows, q.position - kv.position + 1);  // maybe below 0
      const int64_t begin = kv.row, end = kv.row + last;
      visits[static_cast<size_t>(kv.kv)].push_back({.run = to_int(std::ssize(out.runs)),
                                                    .begin = to_int(begin),
                                                    .end = to_int(end),
                                                    .sees = to_int(kv.row + sees),
                                                    .tile = run.tiles});
      run.tiles += to_int((end - 1) / kTileKeys - begin / kTileKeys + 1);
    }
    const int64_t of_head = q.rows * a.group;
    run.logs = out.logs;
    out.sums += a.kv_heads * of_head * run.tiles;
    out.logs += a.kv_heads * of_head;
    out.most_rows = std::max(out.most_rows, of_head);
    out.runs.push_back(run);
  }
  for (size_t pair = 0; pair < kMostPaidPairs; ++pair) {
    out.visits.insert(out.visits.end(), visits[pair].begin(), visits[pair].end());
    out.of_pair[pair + 1] = to_int(std::ssize(out.visits));
  }
  return out;
}

}  // namespace braid::cuda
