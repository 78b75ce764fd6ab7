#pragma once

#include <algorithm>
#include <optional>

#include "braid/ops/dual_chunks.h"
#include "braid/program/builder.h"

namespace braid::ops {

// Attention of several Q segments over several KV segments in one call, merged exactly with a
// running state (StreamFusion, Algorithm 2 and appendix C). Over a query's visible keys
//   s = scale q.k,  m = max s,  l = sum e^(s - m),  O' = sum e^(s - m) v
// and (O', l, m) of two sets of keys merge to  m = max(m1, m2),  l = l1 e^(m1 - m) + l2 e^(m2 - m),
// O' likewise. A query at position p sees the keys at positions [p - window_left, p +
// window_right]; kUnlimited is no bound, window_right = 0 is causal. Query head h reads KV head (h
// + head_offset) / group of its segment's heads. With dual chunks a query is turned for the chunk
// of each KV segment, which lies in a single chunk.
//
// Inputs, all [B, L, heads, D] with the sequence axis B, except l and m:
//   0 state_o f32 [B, rows, H, D]   1 state_l f32 [B, rows, H]   2 state_m f32 [B, rows, H]
//   3 o, 4 send, 5 joint, 6 rest    destinations of finished rows; any may be absent
//   7 .. 7 + num_q                  q values, then a k and a v value for each pair
// The call reads the state with load_state (otherwise begins the state), and writes the state
// unless finalize. A call with finalize alone may use the state as scratch, unless its kernel
// waits for the call's phases inside (KernelInfo::waits_inside): then the state needs no rows. A
// call that finalizes writes O = O' / l, and zeros for queries without a visible key.
//
// `o` is an open buffer (ops/one_sided.h). This call fills rows and heads of `o` that no other
// call writes, in no order with other calls; readers come after the sync that closes `o`. Rows of
// an `owner` go into the owner's `o`, at this rank's place there; a push (ops::MoveAttrs `told`)
// after the call tells the owner.
//
// Data of phase 0 is in memory before the call. Data of phase s > 0 arrives with the s-th of the
// pulls that the call waits for inside. Results do not depend on phases: a kernel that waits
// inside may begin before the pulls have ended, and any other kernel runs after all pulls. KV
// segments are in the order of their phases.
//
// Results are made in parts, in order (kLastPart). A push that takes a part before the last alone
// may start as soon as a kernel has made the part. If rows of such a part go to `send`, other rows
// for other ranks go to `rest`.
constexpr int64_t kUnlimited = -1;

// KV segments that every kernel with waits inside takes in a call.
constexpr int64_t kMostSegments = 20;

struct QSegment {
  enum class Out : uint8_t { o, send, joint, rest };
  int q = 0;  // which q value
  int64_t row = 0;
  int64_t head = 0;  // heads [head, head + H) in that value
  int64_t rows = 0;
  int64_t position = 0;   // of the first row
  int64_t state_row = 0;  // rows of the state
  Out out = Out::o;
  int64_t out_row = 0;
  int64_t out_head = 0;
  int owner = -1;    // with Out::o: the rank whose `o` is written by kernels; -1: this rank
  int kv_begin = 0;  // KV segments [kv_begin, kv_end) are seen
  int kv_end = 0;
  int phase = 0;
  int part = kLastPart;
  bool operator==(const QSegment&) const = default;
};

struct KvSegment {
  int kv = 0;  // index of the (k, v) pair
  int64_t row = 0;
  int64_t head = 0;  // first KV head in that value
  int64_t rows = 0;
  int64_t position = 0;
  int phase = 0;
  bool operator==(const KvSegment&) const = default;
};

struct SegmentAttentionAttrs {
  static constexpr size_t kFirstResult = 3;
  static constexpr size_t kFirstQ = 7;

  int64_t heads = 0;  // H of the state
  int64_t kv_heads = 0;
  int64_t group = 1;
  int64_t head_offset = 0;
  float scale = 1;
  int64_t window_left = kUnlimited;
  int64_t window_right = kUnlimited;
  bool load_state = false;
  bool finalize = true;
  int num_q = 1;
  std::vector<QSegment> q;
  std::vector<KvSegment> kv;
  std::optional<DualChunks> dual;

  bool carries_state() const { return load_state || !finalize; }
  bool sees(int64_t query, int64_t key) const {
    return (window_right == kUnlimited || key - query <= window_right) &&
           (window_left == kUnlimited || query - key <= window_left);
  }
  // Elements that a call over `sequences` stores at `s.owner`; zero without stores.
  int64_t stored(const QSegment& s, int64_t sequences, int64_t head_dim) const {
    return finalize && s.owner >= 0 ? sequences * s.rows * heads * head_dim : 0;
  }
  // Keys visible to the query at `position`, as a range of the segment's rows.
  Range visible(int64_t position, const KvSegment& kv_segment) const;
  int last_phase() const;
  // Phase of the first rows that the call reads from an input. -1: reads none.
  int phase_of(size_t input) const;
  int parts() const;  // before the last
  // Pairs of a query and a visible key, by the phase that completes both: [last_phase() + 1]; of
  // one part or of all.
  std::vector<double> pairs(std::optional<int> part = {}) const;

  bool operator==(const SegmentAttentionAttrs&) const = default;
  template <class F>
  void fields(F&& f) const {
    f("heads", heads);
    f("group", group);
    f("q_segments", q.size());
    f("kv_segments", kv.size());
    if (window_left != kUnlimited) f("window_left", window_left);
    if (window_right != kUnlimited) f("window_right", window_right);
    if (dual) dual->fields(f);
    f("load_state", load_state);
    f("finalize", finalize);
    if (last_phase() > 0) f("phases", last_phase() + 1);
    if (parts() > 0) f("early", std::ssize(q) - std::ranges::count(q, kLastPart, &QSegment::part));
  }
};

extern const OpDef kSegmentAttention;

// Values without contents, for other ops to fill. `in` gives the launch its batch.
struct BuffersAttrs {
  std::vector<ValueType> types;
  bool operator==(const BuffersAttrs&) const = default;
  template <class F>
  void fields(F&& f) const {
    f("count", types.size());
  }
};
extern const OpDef kBuffers;  // (in) -> types

}  // namespace braid::ops
