#include "braid/parallel/attention/pieces.h"

// Ring attention without a ring: each rank reads the KV of the others where they are, the next one
// under the attention of the last (StreamFusion, Algorithm 1, RINGATTN). Between the two meetings
// of all ranks nobody waits for anybody. Where one call takes all keys as they come, it does.
namespace braid {

AttentionOutputs lower_ring(AttentionPieces& p) {
  const AttentionInputs& in = p.inputs();
  std::vector<ValueType> types;
  for (int i = 1; i < p.R(); ++i) types.insert(types.end(), 2, p.ring_buffer(0));
  const auto opened = p.open({in.q, in.k, in.v}, types);
  const Chunk q = p.q_chunk(0, kNoValue), joint_q = p.joint_q_chunk();
  const Chunk joint_kv = p.joint_kv_chunk(), own = p.kv_chunk(0, kNoValue, kNoValue);
  const auto buffer = [&](int i) { return &opened.buffers[2 * static_cast<size_t>(i - 1)]; };
  const auto pull = [&](int i) {
    p.pull_ring(0, i, kNoValue, kNoValue, buffer(i)[0], buffer(i)[1]);
  };
  std::vector<Chunk> theirs, staged;  // [R - 1]
  for (int i = 1; i < p.R(); ++i) {
    theirs.push_back(p.ring_chunk(0, i, buffer(i)[0], buffer(i)[1]));
    staged.push_back(at_stage(theirs.back(), buffer(i)[0], i));
  }
  std::vector<const Chunk*> all{&joint_kv, &own};
  for (const Chunk& chunk : staged) all.push_back(&chunk);
  if (p.R() > 1 && p.takes_stages({&q, &joint_q}, all)) {
    for (int i = 1; i < p.R(); ++i) {
      p.stage(fmt::format("ring{}", i));
      pull(i);
    }
    p.stage("attend");
    p.begin_states({});
    p.attend({&q, &joint_q}, all, true, &opened.results);
  } else {
    p.begin_states({&q, &joint_q});
    for (int i = 0; i < p.R(); ++i) {
      p.stage(fmt::format("ring{}", i));
      if (i + 1 < p.R()) pull(i + 1);
      const auto* results = i + 1 == p.R() ? &opened.results : nullptr;
      if (i == 0) {
        p.attend({&q, &joint_q}, {&joint_kv, &own}, true, results);
      } else {
        p.attend({&q, &joint_q}, {&theirs[static_cast<size_t>(i - 1)]}, false, results);
      }
    }
  }
  p.push_results(opened.results, {}, kNoValue, true);
  return p.close(opened.results, {in.q, in.k, in.v});
}

}  // namespace braid
