#include "braid/parallel/attention/pieces.h"

// Ring attention without a ring: each rank reads the KV of the others where they are, the next one
// under the attention of the last (StreamFusion, Algorithm 1, RINGATTN). Between the two meetings
// of all ranks nobody waits for anybody.
namespace braid {

AttentionOutputs lower_ring(AttentionPieces& p) {
  const AttentionInputs& in = p.inputs();
  std::vector<ValueType> types;
  for (int i = 1; i < p.R(); ++i) types.insert(types.end(), 2, p.ring_buffer(0));
  const auto opened = p.open({in.q, in.k, in.v}, types);
  const Chunk q = p.q_chunk(0, kNoValue), joint_q = p.joint_q_chunk();
  const Chunk joint_kv = p.joint_kv_chunk(), own = p.kv_chunk(0, kNoValue, kNoValue);
  p.begin_states({&q, &joint_q});
  const auto buffer = [&](int i) { return &opened.buffers[2 * static_cast<size_t>(i - 1)]; };
  for (int i = 0; i < p.R(); ++i) {
    p.stage(fmt::format("ring{}", i));
    if (i + 1 < p.R()) {
      p.pull_ring(0, i + 1, kNoValue, kNoValue, buffer(i + 1)[0], buffer(i + 1)[1]);
    }
    const auto* results = i + 1 == p.R() ? &opened.results : nullptr;
    if (i == 0) {
      p.attend({&q, &joint_q}, {&joint_kv, &own}, true, results);
    } else {
      const Chunk theirs = p.ring_chunk(0, i, buffer(i)[0], buffer(i)[1]);
      p.attend({&q, &joint_q}, {&theirs}, false, results);
    }
  }
  p.push_results(opened.results, {}, kNoValue, true);
  return p.close(opened.results, {in.q, in.k, in.v});
}

}  // namespace braid
