#include "braid/parallel/attention/pieces.h"

// Ring attention without a ring: each rank reads the KV of the others where they are, the next one
// under the attention of the last (StreamFusion, Algorithm 1, RINGATTN). Between the two meetings
// of all ranks nobody waits for anybody. Where one call takes all keys as they come, it does: what
// comes from other machines comes in parts, and the prefix' results leave early.
namespace braid {
namespace {

// What one pull brings.
struct Coming {
  int step = 0;  // of the ring
  KeyPart part;
  ValueId k = kNoValue, v = kNoValue;
};

// All of it, in so many parts of each step, in values that nobody has made.
std::vector<Coming> coming_in(const std::vector<int>& parts) {
  std::vector<Coming> all;
  ValueId next = kNoValue;
  for (size_t i = 0; i < parts.size(); ++i) {
    for (int n = 0; n < parts[i]; ++n) {
      const ValueId k = --next, v = --next;
      all.push_back({.step = static_cast<int>(i) + 1, .part = {n, parts[i]}, .k = k, .v = v});
    }
  }
  return all;
}

std::vector<Chunk> chunks_of(const AttentionPieces& p, const std::vector<Coming>& all,
                             bool staged) {
  std::vector<Chunk> chunks;
  for (const Coming& c : all) {
    Chunk chunk = p.ring_chunk(0, c.step, c.k, c.v, c.part);
    const int stage = staged ? static_cast<int>(chunks.size()) + 1 : 0;
    chunks.push_back(at_stage(std::move(chunk), c.k, stage));
  }
  return chunks;
}

}  // namespace

AttentionOutputs lower_ring(AttentionPieces& p) {
  const AttentionInputs& in = p.inputs();
  const Chunk q = p.q_chunk(0, kNoValue), joint_q = p.joint_q_chunk();
  const Chunk early_joint_q = p.machines() > 1 ? early(at_stage(joint_q, in.joint_q, 1)) : joint_q;
  const Chunk joint_kv = p.joint_kv_chunk(), own = p.kv_chunk(0, kNoValue, kNoValue);
  std::vector<Coming> coming;
  std::vector<int> wanted;  // [R - 1]
  for (int i = 1; i < p.R(); ++i) wanted.push_back(p.parts_of_ring(i));
  const bool whole = AttentionPieces::fit_parts(wanted, [&](const std::vector<int>& parts) {
    coming = coming_in(parts);
    return p.R() > 1 && p.waits_inside({&q, &early_joint_q},
                                       pointers({&joint_kv, &own}, chunks_of(p, coming, true)));
  });
  std::vector<ValueType> types;
  for (const Coming& c : coming) types.insert(types.end(), 2, p.ring_buffer(0, c.part));
  const auto opened = p.open({in.q, in.k, in.v}, types);
  for (size_t n = 0; n < coming.size(); ++n) {
    coming[n].k = opened.buffers[2 * n];
    coming[n].v = opened.buffers[2 * n + 1];
  }
  const std::vector<Chunk> theirs = chunks_of(p, coming, whole);
  const auto pull = [&](const Coming& c) {
    p.pull_ring(0, c.step, kNoValue, kNoValue, c.k, c.v, c.part);
  };
  if (whole) {
    for (const Coming& c : coming) {
      p.stage(c.part.count > 1 ? fmt::format("ring{}_part{}", c.step, c.part.index)
                               : fmt::format("ring{}", c.step));
      pull(c);
    }
    p.stage("attend");
    p.begin_states({});
    p.attend({&q, &early_joint_q}, pointers({&joint_kv, &own}, theirs), true, &opened.results);
  } else {
    p.begin_states({&q, &joint_q});
    for (int i = 0; i < p.R(); ++i) {
      p.stage(fmt::format("ring{}", i));
      if (i + 1 < p.R()) pull(coming[static_cast<size_t>(i)]);
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
