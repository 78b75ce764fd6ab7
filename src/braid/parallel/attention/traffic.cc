#include "braid/parallel/attention/traffic.h"

#include "braid/base/math.h"

namespace braid {

std::vector<std::array<int64_t, 3>> attention_traffic(const SequenceAttention& a,
                                                      const SequenceMesh& mesh) {
  const int P = mesh.ranks();
  const int64_t e = a.batch * bytes_of(a.dtype, a.head_dim);
  std::vector<std::array<int64_t, 3>> bytes(static_cast<size_t>(P));
  std::vector<int64_t> ring_rows(static_cast<size_t>(mesh.degrees.ring));
  for (int z = 0; z < P; ++z) ring_rows[static_cast<size_t>(mesh.r(z))] += a.kv.rows(z);
  const auto joint = [&](int x) {
    return even_part(a.joint_q, mesh.degrees.ring, mesh.r(x)).size() *
           even_part(a.q_heads, mesh.degrees.head_groups(), mesh.head_group(x)).size() * e;
  };
  for (int x = 0; x < P; ++x) {
    const Range q = even_part(a.q_heads, mesh.degrees.head_groups(), mesh.head_group(x));
    const int64_t hq = q.size(), hkv = (q.end - 1) / a.group() + 1 - q.begin / a.group();
    for (int y = 0; y < P; ++y) {
      if (y == x) continue;
      const auto link = static_cast<size_t>(mesh.topology.link(x, y));
      auto& own = bytes[static_cast<size_t>(x)][link];
      if (mesh.r(y) == mesh.r(x)) {
        const int asker = mesh.mode == SpMode::ulysses ? y : x;
        bytes[static_cast<size_t>(asker)][link] += (a.q.rows(y) * hq + 2 * a.kv.rows(y) * hkv) * e;
        own += a.q.rows(y) * hq * e;
      } else if (mesh.t(y) == mesh.t(x) && mesh.u(y) == mesh.u(x)) {
        // With a head group of its own, what the neighbour holds of all ranks with its r.
        own += 2 * ring_rows[static_cast<size_t>(mesh.r(y))] * hkv * e;
      }
      // Between machines to one rank, which forwards it inside its own.
      const int devices = mesh.topology.devices;
      if (mesh.topology.link(x, y) == LinkClass::machine) {
        for (int z = x % devices; z < P; z += devices) own += joint(z);
      } else if (y % devices == x % devices) {
        own += joint(x);
      }
    }
  }
  return bytes;
}

}  // namespace braid
