#pragma once

#include <array>
#include <vector>

#include "braid/parallel/attention/lower_attention.h"

namespace braid {

// Rows from a rank to another in an attention.
struct AttentionRows {
  // Queries; keys and values; results for the receiver's queries; the prefix' results; other ranks'
  // prefix results, received by the sender and forwarded inside its machine.
  enum class What : uint8_t { q, kv, o, joint_o, forwarded_o };
  What what = What::q;
  int from = 0;
  int to = 0;
  int64_t bytes = 0;
};

// All rows that move, from lengths, head counts and the order of rings alone; a run's moves equal
// this list (docs/log/streamfusion.md compares the sums with StreamFusion's appendix D). With
// x = (t, u, r), head group g with hq(x) query and hkv(x) KV heads, e = B D bytes per element, and
// y another rank:
//   y shares r(x)                  q: Lq(y) hq(x) e   k, v: 2 Lkv(y) hkv(x) e   o: Lq(y) hq(x) e
//   y shares t(x), u(x)            ring: 2 sum over z with r(z) = r(y) of Lkv(z) hkv(x) e; in usp,
//                                  tas and torus from a rank of x's machine that has fetched the
//                                  rows (SequenceMesh::ring_steps), otherwise from y
//   y is x on another machine      joint o: Lj(r(x)) hq(x) e
//   y is on x's machine            joint o: sum over z, which are x on any machine, of the same
std::vector<AttentionRows> attention_rows(const SequenceAttention& attention,
                                          const SequenceMesh& mesh);

// Bytes that each rank asks the fabric for, by LinkClass: [ranks][classes]. The receiver asks for
// q, k and v (in ulysses the sender); the sender asks for results.
std::vector<PerLink<int64_t>> attention_traffic(const SequenceAttention& attention,
                                                const SequenceMesh& mesh);

}  // namespace braid
