#pragma once

#include <array>
#include <vector>

#include "braid/parallel/attention/lower_attention.h"

namespace braid {

// Rows that go from one rank to another in one attention.
struct AttentionRows {
  // Queries; keys and values; results of the receiver's queries; the prefix' results; the prefix'
  // results of other ranks, which the sender has got and passes on in its machine.
  enum class What : uint8_t { q, kv, o, joint_o, forwarded_o };
  What what = What::q;
  int from = 0;
  int to = 0;
  int64_t bytes = 0;
};

// All rows that move, made of lengths, head counts and the order of rings alone; what the ranks of
// a run move equals it (docs/sequence-parallel.md derives it, and StreamFusion's appendix D from
// it). With x = (t, u, r), head group g of hq(x) query and hkv(x) KV heads, e = B D bytes per
// element, and y another rank:
//   y shares r(x)                  q: Lq(y) hq(x) e   k, v: 2 Lkv(y) hkv(x) e   o: Lq(y) hq(x) e
//   y shares t(x), u(x)            ring: 2 sum over z with r(z) = r(y) of Lkv(z) hkv(x) e; in usp,
//                                  tas and torus from a rank of x's machine where that rank has
//                                  fetched it (SequenceMesh::ring_steps), else from y
//   y is x on another machine      joint o: Lj(r(x)) hq(x) e
//   y is on x's machine            joint o: sum over z, which are x on any machine, of the same
std::vector<AttentionRows> attention_rows(const SequenceAttention& attention,
                                          const SequenceMesh& mesh);

// Bytes that each rank asks the fabric for, by LinkClass: [ranks][classes]. Who receives q, k and v
// asks for them, in ulysses who sends them; of results who sends them.
std::vector<std::array<int64_t, 3>> attention_traffic(const SequenceAttention& attention,
                                                      const SequenceMesh& mesh);

}  // namespace braid
