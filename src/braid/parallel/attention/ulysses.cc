#include "braid/parallel/attention/pieces.h"

// Ulysses: every rank sends the others their heads from its rows, computes its own heads for all
// rows in a single call, and sends the results back. All data is pushed to its place of use. A
// meeting before the first push says that the buffers are free; afterwards a rank only waits for
// arrivals.
namespace braid {

AttentionOutputs lower_ulysses(AttentionPieces& p) {
  const AttentionInputs& in = p.inputs();
  Buffer* const queries = p.plan(p.q_buffer(0));
  const KvBuffer keys = p.plan_kv(p.kv_buffer(0));
  Buffer* const arrivals = p.plan(ops::arrivals_type(p.world()));
  const auto results = p.open({in.first}, {queries, keys.k, keys.v, arrivals});
  p.scope("push_qkv");
  p.push_qkv(arrivals->value, *queries, keys);
  p.sync({.kept = {in.first},
          .closed = {queries->value, keys.k->value, keys.v->value},
          .arrivals = arrivals->value,
          .opens = {}});
  const Chunk q = p.q_chunk(0, queries), joint_q = p.joint_q_chunk();
  const Chunk joint_kv = p.joint_kv_chunk(), kv = p.kv_chunk(0, keys);
  p.scope("attend");
  const auto sent = p.attend({&q, &joint_q}, {&joint_kv, &kv}, results);
  p.push_results(results, {&q}, sent.send, true);
  return p.close(results, {in.first}, false);
}

}  // namespace braid
