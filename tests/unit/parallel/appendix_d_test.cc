// What crosses between machines, counted in the Programs, against StreamFusion's appendix D: N
// machines of M ranks, in elements that come into one machine, over B L H D / N.
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "braid/ops/one_sided.h"
#include "braid/parallel/attention/lower_attention.h"

namespace braid {
namespace {

constexpr int64_t kD = 8;

SequenceAttention even_attention(int P, int64_t heads) {
  SequenceAttention a{.q_heads = heads, .kv_heads = heads, .head_dim = kD};
  a.q = a.kv = even_layout(P * 4, P);
  return a;
}

// Calls fn(mover, op, move) for all that crosses between machines.
template <class Fn>
void for_each_crossing(const std::vector<Program>& programs, const Topology& topology, Fn&& fn) {
  for (const Program& program : programs) {
    for (const Op& op : program.ops) {
      if (op.def != &ops::kPull && op.def != &ops::kPush) continue;
      const auto& attrs = op.attrs.as<ops::MoveAttrs>();
      for (const ops::Move& move : attrs.moves) {
        if (topology.link(attrs.rank, move.peer) != LinkClass::cluster) continue;
        fn(attrs.rank, op, move);
      }
    }
  }
}

struct Volumes {
  int64_t ring = 0;     // keys and values between ring neighbours
  int64_t ulysses = 0;  // queries, keys, values and results of head groups
};

// [machines]
std::vector<Volumes> into_machines(const SequenceAttention& a, const SequenceMesh& mesh) {
  const Topology& topology = mesh.topology;
  std::vector<Volumes> volumes(static_cast<size_t>(topology.machines));
  for_each_crossing(attention_programs(a, mesh), topology,
                    [&](int rank, const Op& op, const ops::Move& move) {
                      const int into = op.def == &ops::kPull ? rank : move.peer;
                      Volumes& v = volumes[static_cast<size_t>(topology.machine_of(into))];
                      const bool ring = mesh.r(rank) != mesh.r(move.peer);
                      (ring ? v.ring : v.ulysses) += move.elems(kD);
                    });
  return volumes;
}

// Each machine's volumes are `ring` and `ulysses` over `by`, in units of B L H D / N elements.
void expect_volumes(const SequenceAttention& a, const SequenceMesh& mesh, int64_t ring,
                    int64_t ulysses, int64_t by) {
  const Topology& t = mesh.topology;
  SCOPED_TRACE(
      fmt::format("{} {} on {}", to_string(mesh.mode), to_string(mesh.degrees), to_string(t)));
  const int64_t all = a.q.length() * a.q_heads * kD;
  for (const Volumes& v : into_machines(a, mesh)) {
    EXPECT_EQ(v.ring * by * t.machines, ring * all);
    EXPECT_EQ(v.ulysses * by * t.machines, ulysses * all);
  }
}

// Calls fn(topology, mesh, P_u, P_r) for all meshes of the modes on 2 to 5 machines of 1 to 6
// ranks, whose heads divide evenly.
template <class Fn>
void for_each_mesh(std::initializer_list<SpMode> modes, Fn&& fn) {
  for (int N = 2; N <= 5; ++N) {
    for (int M = 1; M <= 6; ++M) {
      const Topology topology{.machines = N, .devices = M};
      const SequenceAttention a = even_attention(N * M, N * M);
      for (SpMode mode : modes) {
        for (const SequenceMesh& mesh : sequence_meshes(mode, topology, a.q_heads)) {
          fn(a, mesh, mesh.degrees.head_groups(), mesh.degrees.ring);
        }
      }
    }
  }
}

TEST(AppendixD, UspWithARingOverAllMachinesIsEquation4) {
  int meshes = 0;
  for_each_mesh({SpMode::usp}, [&](const auto& a, const SequenceMesh& mesh, int, int P_r) {
    const int N = mesh.topology.machines;
    if (P_r % N != 0) return;
    expect_volumes(a, mesh, 2 * (N - 1), 0, 1);
    ++meshes;
  });
  EXPECT_GT(meshes, 40);
}

// Of P_r <= N ring groups each has A = N / P_r machines. Equation 5 is 2 (P_r - 1) A + 4 (A - 1) /
// A: its second term is one machine's, its first one that of all A machines, which fetch a head
// group each. One machine gets 2 (P_r - 1) + 4 (A - 1) / A.
TEST(AppendixD, UspWithUlyssesOverMachinesIsEquation5OfOneMachine) {
  int meshes = 0;
  for_each_mesh({SpMode::usp}, [&](const auto& a, const SequenceMesh& mesh, int, int P_r) {
    const int N = mesh.topology.machines;
    if (N % P_r != 0) return;
    const int A = N / P_r;
    expect_volumes(a, mesh, int64_t{2} * (P_r - 1) * A, int64_t{4} * (A - 1), A);
    int64_t ring = 0;  // of the first group's machines together: the first term as printed
    const auto volumes = into_machines(a, mesh);
    for (int machine = 0; machine < A; ++machine) {
      ring += volumes[static_cast<size_t>(machine)].ring;
    }
    EXPECT_EQ(ring * N * P_r, int64_t{2} * (P_r - 1) * N * a.q.length() * a.q_heads * kD);
    ++meshes;
  });
  EXPECT_GT(meshes, 30);
}

TEST(AppendixD, HeadGroupsOverAllMachinesAreEquation6) {
  int meshes = 0;
  for_each_mesh({SpMode::tas, SpMode::torus},
                [&](const auto& a, const SequenceMesh& mesh, int P_u, int) {
                  const int N = mesh.topology.machines;
                  if (P_u % N != 0) return;
                  expect_volumes(a, mesh, 0, int64_t{4} * (N - 1), N);
                  ++meshes;
                });
  EXPECT_GT(meshes, 100);
}

// With P_u <= N the ring of each head group has C = N / P_u machines. Equation 7 is 2 (C - 1) +
// 4 (P_u - 1) / P_u C: its first term is one machine's, its second one that of all C machines. One
// machine gets 2 (C - 1) + 4 (P_u - 1) / P_u.
TEST(AppendixD, RingsOverMachinesAreEquation7OfOneMachine) {
  int meshes = 0;
  for_each_mesh({SpMode::tas, SpMode::torus},
                [&](const auto& a, const SequenceMesh& mesh, int P_u, int) {
                  const int N = mesh.topology.machines;
                  if (N % P_u != 0) return;
                  const int C = N / P_u;
                  expect_volumes(a, mesh, int64_t{2} * (C - 1) * P_u, int64_t{4} * (P_u - 1), P_u);
                  ++meshes;
                });
  EXPECT_GT(meshes, 60);
}

// Lemma D.1 with both slips mended: what USP moves more is 2 (M - 1) (N - 2) / P_u, never negative.
TEST(AppendixD, UspNeverMovesLess) {
  for_each_mesh({SpMode::usp}, [&](const auto& a, const SequenceMesh& usp, int P_u, int P_r) {
    const int N = usp.topology.machines, M = usp.topology.devices;
    if (N % P_r != 0 || N % P_u != 0) return;
    const SequenceMesh tas =
        sequence_mesh(SpMode::tas, usp.topology, a.q_heads, {.ulysses = P_u, .ring = P_r});
    const Volumes more = into_machines(a, usp)[0], less = into_machines(a, tas)[0];
    EXPECT_EQ((more.ring + more.ulysses - less.ring - less.ulysses) * N * P_u,
              int64_t{2} * (M - 1) * (N - 2) * a.q.length() * a.q_heads * kD)
        << to_string(usp.degrees) << " on " << to_string(usp.topology);
  });
}

// Also where groups do not fill machines, rows are uneven, and some ranks have none.
TEST(AppendixD, NoMachineFetchesTheSameKeysOfARingTwice) {
  int fetches = 0;
  for (const char* text : {"2x2", "2x3", "3x2", "2x4", "3x4", "4x3", "2x6"}) {
    const Topology topology = parse_topology(text);
    const int P = topology.ranks();
    SequenceAttention a{.q_heads = 12, .kv_heads = 12, .head_dim = kD};
    a.joint_q = a.joint_kv = 3;
    std::vector<int64_t> rows;
    for (int r = 0; r < P; ++r) rows.push_back(r * 5 % 7);
    a.q = a.kv = contiguous_layout(rows, 3);
    for (SpMode mode : {SpMode::usp, SpMode::tas, SpMode::torus}) {
      for (const SequenceMesh& mesh : sequence_meshes(mode, topology, a.q_heads)) {
        // By machine, owner and value, first row and head.
        std::set<std::tuple<int, int, ValueId, int64_t, int64_t>> seen;
        for_each_crossing(attention_programs(a, mesh), topology,
                          [&](int rank, const Op& op, const ops::Move& move) {
                            if (op.def != &ops::kPull) return;
                            const ValueId value = op.inputs[static_cast<size_t>(move.src)];
                            ++fetches;
                            EXPECT_TRUE(seen.emplace(topology.machine_of(rank), move.peer, value,
                                                     move.src_row, move.src_head)
                                            .second)
                                << to_string(mode) << " " << to_string(mesh.degrees) << " on "
                                << text << ": rank " << rank << " of " << move.peer;
                          });
      }
    }
  }
  EXPECT_GT(fetches, 1000);
}

}  // namespace
}  // namespace braid
