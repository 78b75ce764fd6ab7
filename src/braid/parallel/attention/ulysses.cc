#include "braid/parallel/attention/pieces.h"

// Ulysses: every rank gives the others their heads of its rows, computes its own heads of all rows
// in one call, and sends the results back. Everything is pushed to where it is used. One meeting,
// before there is anything to send, says that the buffers are free; afterwards a rank waits for the
// arrival of data alone.
namespace braid {

AttentionOutputs lower_ulysses(AttentionPieces& p) {
  const AttentionInputs& in = p.inputs();
  const auto opened = p.open(
      {in.early}, {p.q_buffer(0), p.kv_buffer(0), p.kv_buffer(0), ops::arrivals_type(p.world())});
  const ValueId q_buffer = opened.buffers[0], k_buffer = opened.buffers[1],
                v_buffer = opened.buffers[2], arrivals = opened.buffers[3];
  p.stage("push_qkv");
  p.push_qkv(arrivals, q_buffer, k_buffer, v_buffer);
  p.sync({.kept = {in.early},
          .closed = {q_buffer, k_buffer, v_buffer},
          .arrivals = arrivals,
          .opens = {}});
  const Chunk q = p.q_chunk(0, q_buffer), joint_q = p.joint_q_chunk();
  const Chunk joint_kv = p.joint_kv_chunk(), kv = p.kv_chunk(0, k_buffer, v_buffer);
  p.begin_states({&q, &joint_q});
  p.stage("attend");
  const ValueId send = p.attend({&q, &joint_q}, {&joint_kv, &kv}, true, &opened.results);
  p.push_results(opened.results, {&q}, send, true);
  return p.close(opened.results, {in.early}, false);
}

}  // namespace braid
