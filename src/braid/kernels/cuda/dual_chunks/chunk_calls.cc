#include "braid/kernels/cuda/dual_chunks/chunk_calls.h"

#include <set>

namespace braid::cuda {
namespace {

using ops::KvSegment;
using ops::QSegment;
using ops::SegmentAttentionAttrs;

// Whether some row of the queries may see some of the keys.
bool sees(const SegmentAttentionAttrs& a, const QSegment& q, const KvSegment& kv) {
  return q.rows > 0 && kv.rows > 0 &&
         (a.window_right == ops::kUnlimited ||
          kv.position <= q.position + q.rows - 1 + a.window_right);
}

bool is_turned(const ops::DualChunks& dual, const QSegment& q, int64_t chunk) {
  const int64_t last = q.position + q.rows - 1;
  return dual.moves(last, chunk * dual.chunk) < 0 || dual.growth(last) != 1;
}

ChunkCall make_call(const SegmentAttentionAttrs& whole, int64_t chunk, bool first, bool last) {
  ChunkCall call{.attrs = whole, .chunk = chunk};
  SegmentAttentionAttrs& a = call.attrs;
  a.dual.reset();
  a.load_state = whole.load_state || !first;
  a.finalize = whole.finalize && last;
  a.q.clear();
  a.kv.clear();
  std::vector<int> before = {0};  // segments of the chunk ahead of each segment
  for (const KvSegment& kv : whole.kv) {
    const bool in = kv.position / whole.dual->chunk == chunk;
    if (in) a.kv.emplace_back(kv).phase = 0;
    before.push_back(before.back() + (in ? 1 : 0));
  }
  for (const QSegment& s : whole.q) {
    const int begin = before[s.kv_begin], end = before[s.kv_end];
    bool any = false;
    for (int i = begin; i < end; ++i) any = any || sees(whole, s, a.kv[i]);
    if (!any && a.load_state && !a.finalize) continue;
    QSegment& q = a.q.emplace_back(s);
    q.kv_begin = any ? begin : 0;
    q.kv_end = any ? end : 0;
    q.phase = 0;
    q.part = kLastPart;
    if (!any || !is_turned(*whole.dual, s, chunk)) continue;
    call.met.push_back({s.q, s.row, s.head, s.rows, s.position, call.met_rows});
    q.q = whole.num_q;
    q.row = call.met_rows;
    q.head = 0;
    call.met_rows += s.rows;
  }
  if (!call.met.empty()) ++a.num_q;
  return call;
}

}  // namespace

std::vector<ChunkCall> chunk_calls(const SegmentAttentionAttrs& whole) {
  std::set<int64_t> chunks;
  for (const QSegment& q : whole.q) {
    for (int i = q.kv_begin; i < q.kv_end; ++i) {
      const KvSegment& kv = whole.kv[i];
      if (sees(whole, q, kv)) chunks.insert(kv.position / whole.dual->chunk);
    }
  }
  if (chunks.empty()) chunks.insert(0);  // states begin, or results are made, without keys
  std::vector<ChunkCall> calls;
  for (const int64_t chunk : chunks) {
    calls.push_back(make_call(whole, chunk, chunk == *chunks.begin(), chunk == *chunks.rbegin()));
  }
  return calls;
}

}  // namespace braid::cuda
