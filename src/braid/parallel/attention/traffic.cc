#include "braid/parallel/attention/traffic.h"

#include "braid/base/math.h"

namespace braid {

std::vector<AttentionRows> attention_rows(const SequenceAttention& a, const SequenceMesh& mesh) {
  using What = AttentionRows::What;
  const Topology& topology = mesh.topology;
  const int P = mesh.ranks(), devices = topology.devices;
  const int64_t e = a.batch * bytes_of(a.dtype, a.head_dim);
  const auto q_heads = [&](int x) {
    return even_part(a.q_heads, mesh.degrees.head_groups(), mesh.head_group(x));
  };
  const auto joint = [&](int x) {
    return even_part(a.joint_q, mesh.degrees.ring, mesh.r(x)).size() * q_heads(x).size() * e;
  };
  std::vector<int64_t> ring_rows(mesh.degrees.ring);
  for (int z = 0; z < P; ++z) ring_rows[mesh.r(z)] += a.kv.rows(z);
  const auto steps = mesh.ring_steps();
  std::vector<AttentionRows> moves;
  const auto add = [&](What what, int from, int to, int64_t bytes) {
    if (bytes > 0) moves.push_back({what, from, to, bytes});
  };
  for (int x = 0; x < P; ++x) {
    const Range q = q_heads(x);
    const int64_t hq = q.size(), hkv = (q.end - 1) / a.group() + 1 - q.begin / a.group();
    for (const SequenceMesh::RingStep& step : steps[x]) {
      if (step.source == x) continue;
      // The neighbour's rows, from all ranks with its r.
      const int64_t rows = ring_rows[mesh.r(step.source)];
      add(What::kv, mesh.mode == SpMode::ring ? step.source : step.from, x, 2 * rows * hkv * e);
    }
    for (int y = 0; y < P; ++y) {
      if (y == x) continue;
      if (mesh.r(y) == mesh.r(x)) {
        add(What::q, y, x, a.q.rows(y) * hq * e);
        add(What::kv, y, x, 2 * a.kv.rows(y) * hkv * e);
        add(What::o, x, y, a.q.rows(y) * hq * e);
      }
      // Between machines to a single rank, which forwards inside its machine.
      if (topology.link(x, y) == LinkClass::machine) {
        add(What::joint_o, x, y, joint(x));
        for (int z = x % devices; z < P; z += devices) {
          if (z != x) add(What::forwarded_o, x, y, joint(z));
        }
      } else if (y % devices == x % devices) {
        add(What::joint_o, x, y, joint(x));
      }
    }
  }
  return moves;
}

std::vector<PerLink<int64_t>> attention_traffic(const SequenceAttention& a,
                                                const SequenceMesh& mesh) {
  using What = AttentionRows::What;
  std::vector<PerLink<int64_t>> bytes(mesh.ranks());
  for (const AttentionRows& move : attention_rows(a, mesh)) {
    const bool input = move.what == What::q || move.what == What::kv;
    const int asks = input && mesh.mode != SpMode::ulysses ? move.to : move.from;
    const LinkClass link = mesh.topology.link(move.from, move.to);
    bytes[asks][link] += move.bytes;
  }
  return bytes;
}

}  // namespace braid
