// The bound of a mode: its closed form, and no simulated run beats it.
#include "braid/schedule/mode_bound.h"

#include <gtest/gtest.h>

#include <random>

#include "braid/schedule/plan_schedules.h"
#include "braid/schedule/schedule_bound.h"
#include "braid/schedule/simulator.h"
#include "braid/schedule/strategies/registry.h"
#include "unit/schedule/names_catalog.h"

namespace braid {
namespace {

constexpr double kCompute = 1;  // seconds of a rank

SequenceAttention attention(int P, int64_t rows, int64_t joint, int64_t heads) {
  SequenceAttention a{
      .q_heads = heads, .kv_heads = heads, .head_dim = 16, .dtype = DType::bf16, .scale = 1};
  a.joint_q = a.joint_kv = joint;
  a.q = a.kv = even_layout(P * rows, P, joint);
  return a;
}

// Bytes of `rows` rows of `heads` heads.
double bytes(double rows, double heads) {
  return rows * heads * 16 * 2;
}

double bound(const SequenceAttention& a, const SequenceMesh& mesh, const LinkProfile& link) {
  return mode_bound(a, mesh, kCompute, {LinkProfile{}, link, link});
}

constexpr double kSpeeds[] = {1e4, 1e5, 1e6, 1e9};

// Any number of ranks: P - 1 parts of the keys come, one part of the prefix' results goes to each
// other rank; one head's results leave last.
TEST(ModeBound, OfARing) {
  for (int P : {2, 3, 8}) {
    for (double n : {500., 100.}) {
      const double t = 48;
      const SequenceAttention a = attention(P, static_cast<int64_t>(n), 48, 4);
      const SequenceMesh mesh = sequence_mesh(SpMode::ring, {.machines = 1, .devices = P}, 4);
      for (double speed : kSpeeds) {
        const double keys = (P - 1) * 2 * bytes(n, 4) / speed;
        const double joint = (P - 1) * bytes(t / P, 4) / speed;
        const double port = keys + joint;  // others' parts of the prefix come in, too
        EXPECT_NEAR(bound(a, mesh, {speed}), std::max({0., port - kCompute}), 1e-9)
            << P << " ranks at " << speed;
        EXPECT_NEAR(bound(a, mesh, {speed, 0.5}),
                    std::max({0., port + 0.5 - kCompute, keys + joint / 4 + 1 - kCompute}), 1e-9);
      }
    }
  }
}

// Torus and ulysses move the same, so one bound holds for both: each way P - 1 parts of queries,
// keys, values and results.
TEST(ModeBound, OfHeadGroups) {
  for (int P : {2, 4}) {
    const double h = 8. / P;
    const SequenceAttention a = attention(P, 512, 0, 8);
    const Topology topology{.machines = P, .devices = 1};
    for (double speed : kSpeeds) {
      const double rows = (P - 1) * bytes(512, h) / speed;
      const double want = std::max(0., 4 * rows - kCompute);
      for (SpMode mode : {SpMode::ulysses, SpMode::torus, SpMode::tas}) {
        EXPECT_NEAR(bound(a, sequence_mesh(mode, topology, 8), {speed}), want, 1e-9)
            << to_string(mode) << " at " << speed;
      }
    }
  }
}

// What a machine's ranks move goes through one port where they share it.
TEST(ModeBound, OfASharedPort) {
  const SequenceAttention a = attention(4, 500, 0, 4);
  const SequenceMesh usp = sequence_mesh(SpMode::usp, parse_topology("2x2"), 4);
  const double speed = 1e4, keys = 2 * bytes(1000, 2) / speed;  // of a rank
  const LinkProfile inside{1e12};
  EXPECT_NEAR(mode_bound(a, usp, kCompute, {LinkProfile{}, inside, {speed}}), keys - kCompute,
              1e-4);
  EXPECT_NEAR(mode_bound(a, usp, kCompute, {LinkProfile{}, inside, {speed, 0, true}}),
              2 * keys - kCompute, 1e-4);
}

// A rank that computes for long can hide all that it moves.
TEST(ModeBound, IsNothingWhereComputationIsLong) {
  for (SpMode mode : kSpModes) {
    EXPECT_EQ(bound(attention(4, 100, 8, 4), sequence_mesh(mode, parse_topology("2x2"), 4), {1e12}),
              0)
        << to_string(mode);
  }
}

// Uneven rows, every mode and mesh, with and without masks, any speed and latency: a simulated run
// in which nothing but attention and links costs is never below the bound.
TEST(ModeBound, NoRunIsBelow) {
  const auto seed = static_cast<uint64_t>(std::random_device{}());
  SCOPED_TRACE(fmt::format("seed {}", seed));
  std::mt19937_64 rng(seed);
  const auto one_of = [&](auto... values) {
    const std::array list{values...};
    return list[rng() % list.size()];
  };
  const NamesCatalog catalog;
  int close = 0;
  for (int round = 0; round < 40; ++round) {
    const Topology topology =
        parse_topology(one_of("1x2", "2x1", "1x4", "2x2", "4x1", "2x3", "3x2"));
    const int P = topology.ranks();
    SequenceAttention a{.batch = one_of(1, 1, 2), .q_heads = 12, .kv_heads = one_of(12, 4, 3)};
    a.head_dim = 16;
    a.dtype = DType::bf16;
    a.window_right = one_of(-1, -1, 0);
    a.joint_q = a.joint_kv = one_of(0, 40);
    const bool even = rng() % 3 == 0;
    std::vector<int64_t> rows;
    for (int r = 0; r < P; ++r) rows.push_back(even ? 96 : static_cast<int64_t>(rng() % 200));
    if (!even) rows[0] += 1;
    a.q = a.kv = contiguous_layout(rows, a.joint_q);
    Profile profile;
    profile.memory_bytes_per_second = profile.total_memory_bytes_per_second = 1e18;
    profile.unit_bytes_per_second = 1e18;
    const double speed = one_of(1e5, 1e6, 1e7), latency = one_of(0., 1e-3);
    profile.machine_link = {speed * one_of(1., 10.), latency};
    profile.cluster_link = {speed, latency, one_of(0, 1) == 1};
    profile.rates.push_back({.kind = "segment_attention",
                             .dtype = "",
                             .unit = Rate::Unit::flops,
                             .includes_memory = true,
                             .points = {{1, one_of(1e7, 1e8, 1e9)}}});
    const Work work{.extents = {.sequence = a.batch}};
    for (SpMode mode : kSpModes) {
      // The simulator lets ulysses attend before other ranks' pushes have come.
      if (mode == SpMode::ulysses && !even) continue;
      for (const SequenceMesh& mesh : sequence_meshes(mode, topology, a.q_heads)) {
        Plan plan{attention_programs(a, mesh), {}};
        double compute = INFINITY;  // of the rank with the least of it
        for (const Program& program : plan.programs) {
          double seconds = 0;
          for (const Op& op : program.ops) {
            seconds +=
                op.def->cost(op.attrs, program.input_types(op), program.output_types(op), work)
                    .flops /
                profile.rates[0].points[0].per_second;
          }
          compute = std::min(compute, seconds);
        }
        plan_schedules(plan, *find_strategy("sequence_parallel"),
                       {.catalogs = {&catalog},
                        .micro_batches = {{.capacity = work.extents}},
                        .topology = topology,
                        .price = {}});
        const double simulated = simulate(plan, {&work, 1}, CostModel(profile, topology)).seconds;
        const PerLink<LinkProfile> links{LinkProfile{}, profile.machine_link, profile.cluster_link};
        const double least = compute + mode_bound(a, mesh, compute, links);
        SCOPED_TRACE(fmt::format("round {}: {} {} on {}", round, to_string(mode),
                                 to_string(mesh.degrees), to_string(topology)));
        EXPECT_GE(simulated, least * (1 - 1e-6));
        close += simulated < 1.1 * least;
      }
    }
  }
  EXPECT_GT(close, 20) << "a bound far below all runs says nothing";
}

}  // namespace
}  // namespace braid
