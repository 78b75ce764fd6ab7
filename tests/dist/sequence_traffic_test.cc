// Bytes that the fabric counts equal the closed forms, and where they apply the formulas of
// StreamFusion's appendix D.
#include "braid/ops/one_sided.h"
#include "braid/parallel/attention/traffic.h"
#include "dist/sequence_world.h"

namespace braid::testing_sp {
namespace {

SequenceAttention even_attention(int P, int64_t rows_per_rank, int64_t heads) {
  SequenceAttention a{.q_heads = heads, .kv_heads = heads, .head_dim = 8, .scale = 0.3f};
  a.q = a.kv = even_layout(P * rows_per_rank, P);
  return a;
}

// Bytes over a class of links that all ranks of machine 0 asked for.
int64_t of_machine(const WorldResult& got, const Topology& topology, LinkClass link) {
  int64_t total = 0;
  for (int rank = 0; rank < topology.devices; ++rank) {
    total += bytes(got.traffic[static_cast<size_t>(rank)], link);
  }
  return total;
}

void expect_counted(const SequenceAttention& a, const SequenceMesh& mesh, const WorldResult& got) {
  const auto want = attention_traffic(a, mesh);
  for (size_t rank = 0; rank < want.size(); ++rank) {
    for (LinkClass link : {LinkClass::device, LinkClass::machine, LinkClass::cluster}) {
      EXPECT_EQ(bytes(got.traffic[rank], link), want[rank][static_cast<size_t>(link)])
          << "rank " << rank << ", " << to_string(link);
    }
  }
}

TEST(SequenceTraffic, CountersEqualTheGeneralFormula) {
  for (const char* text : {"1x3", "2x2", "4x1", "2x3", "2x4", "4x2"}) {
    const Topology topology = parse_topology(text);
    const int P = topology.ranks();
    SequenceAttention a{.batch = 2, .q_heads = 9, .kv_heads = 3, .head_dim = 8, .scale = 0.3f};
    a.joint_q = a.joint_kv = 5;
    a.q = contiguous_layout(fabric::uneven_parts(7, P, 41), 5);
    a.kv = contiguous_layout(fabric::uneven_parts(8, P, 37), 5);
    for (SpMode mode : kSpModes) {
      for (int ring = 1; ring <= P; ++ring) {
        if (P % ring != 0 || (mode == SpMode::ring && ring < P)) continue;
        if (mode == SpMode::ulysses && ring > 1) continue;
        const SequenceMesh mesh = sequence_mesh(mode, topology, a.q_heads, {.ring = ring});
        SCOPED_TRACE(fmt::format("{} {} on {}", to_string(mode), to_string(mesh.degrees), text));
        expect_counted(a, mesh, run_world(a, mesh, {}));
      }
    }
  }
}

// Elements that cross into a machine, in units of B L H D / N, as equations 4 and 6 have them.
TEST(SequenceTraffic, BetweenMachinesAppendixD) {
  for (const auto& [N, M] : {std::pair{2, 2}, {4, 1}, {2, 4}, {4, 2}, {3, 2}}) {
    const Topology topology{.machines = N, .devices = M};
    const int64_t heads = 24, rows = 4;
    const SequenceAttention a = even_attention(N * M, rows, heads);
    const int64_t unit = a.q.length() * heads * a.head_dim / N * 4;  // bytes of f32
    SCOPED_TRACE(fmt::format("{}x{}", N, M));
    // USP with P_r = N: equation 4, of a machine.
    const SequenceMesh usp = sequence_mesh(SpMode::usp, topology, heads, {.ring = N});
    const WorldResult by_usp = run_world(a, usp, {});
    EXPECT_EQ(of_machine(by_usp, topology, LinkClass::cluster), 2 * (N - 1) * unit);
    // TAS and torus with P_u >= N: equation 6.
    for (SpMode mode : {SpMode::tas, SpMode::torus}) {
      const SequenceMesh mesh = sequence_mesh(mode, topology, heads, {.ring = M});
      const WorldResult got = run_world(a, mesh, {});
      EXPECT_EQ(of_machine(got, topology, LinkClass::cluster) * N, 4 * (N - 1) * unit);
    }
  }
}

// Two machines: USP and torus move the same between them, as section 5.2 says.
TEST(SequenceTraffic, TwoMachinesAreATie) {
  const Topology topology{.machines = 2, .devices = 2};
  const SequenceAttention a = even_attention(4, 6, 8);
  const auto cluster = [&](SpMode mode, int ring) {
    const SequenceMesh mesh = sequence_mesh(mode, topology, 8, {.ring = ring});
    int64_t total = 0;
    for (const auto& rank : attention_traffic(a, mesh)) {
      total += rank[static_cast<size_t>(LinkClass::cluster)];
    }
    return total;
  };
  EXPECT_EQ(cluster(SpMode::usp, 2), cluster(SpMode::torus, 2));
}

// Only two meetings of the whole world in a layer, whatever the mesh; ulysses has one.
TEST(SequenceTraffic, TwoMeetingsALayer) {
  const Topology topology{.machines = 2, .devices = 4};
  const SequenceAttention a = even_attention(8, 4, 16);
  for (SpMode mode : kSpModes) {
    const SequenceMesh mesh = sequence_mesh(mode, topology, 16, {});
    const std::vector<Program> programs = attention_programs(a, mesh);
    int world = 0, calls = 0;
    for (const Op& op : programs[0].ops) {
      if (op.def == &ops::kSync) world += op.attrs.as<ops::SyncAttrs>().axis == "world";
      calls += op.def->kind == "segment_attention";
    }
    EXPECT_EQ(world, mode == SpMode::ulysses ? 1 : 2) << to_string(mode);
    // A call per phase: R steps of each of T key classes, T - 1 later queries, other ranks' queries
    // and keys of the own class, one last.
    const auto& d = mesh.degrees;
    const int fetched = d.ulysses > 1 ? 2 : 0;
    const int stages = d.torus == 1 ? d.ring : d.torus * d.ring + (d.torus - 1) + fetched + 1;
    EXPECT_EQ(calls, stages) << to_string(mode) << " " << to_string(d);
  }
}

}  // namespace
}  // namespace braid::testing_sp
