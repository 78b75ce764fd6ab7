#pragma once

#include <array>
#include <vector>

#include "braid/parallel/attention/lower_attention.h"

namespace braid {

// Bytes that each rank asks the fabric for in one attention, by LinkClass: [ranks][classes]. The
// closed form, made of lengths and head counts alone; counters of a run equal it
// (docs/sequence-parallel.md derives it, and StreamFusion's appendix D from it). With x = (t, u,
// r), head group g of hq(x) query and hkv(x) KV heads, e = B D bytes per element, and y another
// rank:
//   y shares r(x)                  q: Lq(y) hq(x) e   k, v: 2 Lkv(y) hkv(x) e   o: Lq(y) hq(x) e
//   y shares t(x), u(x)            ring: 2 sum over z with r(z) = r(y) of Lkv(z) hkv(x) e
//   y is x on another machine      joint o: Lj(r(x)) hq(x) e
//   y is on x's machine            joint o: sum over z, which are x on any machine, of the same
// In ulysses the q, k, v terms are asked for by y, which pushes them.
std::vector<std::array<int64_t, 3>> attention_traffic(const SequenceAttention& attention,
                                                      const SequenceMesh& mesh);

}  // namespace braid
