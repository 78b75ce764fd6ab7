// Sequence-parallel attention on the simulator: bytes, and what the modes hide.
#include <gtest/gtest.h>

#include "braid/parallel/attention/traffic.h"
#include "braid/schedule/plan_schedules.h"
#include "braid/schedule/profile.h"
#include "braid/schedule/simulator.h"
#include "braid/schedule/strategies/registry.h"
#include "unit/schedule/names_catalog.h"

namespace braid {
namespace {

struct Predicted {
  SimulatedStep step;
  double computation = 0;  // the step with communication that takes no time
  double exposed() const { return step.seconds - computation; }
};

Predicted predict(const SequenceAttention& attention, const SequenceMesh& mesh,
                  const std::string& strategy = "sequence_parallel",
                  const Profile& profile = load_profile("a100")) {
  const NamesCatalog catalog;
  Plan plan{attention_programs(attention, mesh), {}};
  const Extents counts{.sequence = attention.batch};
  plan_schedules(plan, *find_strategy(strategy),
                 {.catalogs = {&catalog},
                  .micro_batches = {{.capacity = counts}},
                  .topology = mesh.topology,
                  .price = {}});
  const Work work{.extents = counts};
  const CostModel model(profile, mesh.topology);
  Predicted result{simulate(plan, {&work, 1}, model)};
  result.computation = simulate_without_communication(plan, {&work, 1}, model).seconds;
  return result;
}

SequenceAttention flux(int64_t side, int P) {
  SequenceAttention a{
      .q_heads = 24, .kv_heads = 24, .head_dim = 128, .dtype = DType::bf16, .scale = 0.1f};
  a.joint_q = a.joint_kv = 512;
  a.q = a.kv = even_layout(side * side, P, 512);
  return a;
}

TEST(SequenceSimulation, MovesTheBytesOfTheClosedForm) {
  for (const char* text : {"1x4", "2x2", "4x8"}) {
    const Topology topology = parse_topology(text);
    const SequenceAttention a = flux(64, topology.ranks());
    for (SpMode mode : {SpMode::ring, SpMode::usp, SpMode::tas, SpMode::torus}) {
      const SequenceMesh mesh = sequence_mesh(mode, topology, 24);
      std::array<double, 3> want{};
      for (const auto& rank : attention_traffic(a, mesh)) {
        for (size_t i = 0; i < want.size(); ++i) want[i] += static_cast<double>(rank[i]);
      }
      const auto got = predict(a, mesh).step.wire_bytes;
      for (LinkClass link : {LinkClass::machine, LinkClass::cluster}) {
        const auto i = static_cast<size_t>(link);
        EXPECT_NEAR(got[i], want[i], 1e-6 * want[i])
            << text << ", " << to_string(mode) << ", " << to_string(link);
      }
    }
  }
}

// An uplink changes no byte; a narrow uplink costs time, the more if a rack's ranks share it.
TEST(SequenceSimulation, RacksAreFartherThanMachines) {
  const Topology topology = parse_topology("2x2x2");
  const SequenceAttention a = flux(64, topology.ranks());
  for (SpMode mode : {SpMode::ring, SpMode::ulysses, SpMode::usp, SpMode::tas, SpMode::torus}) {
    SCOPED_TRACE(to_string(mode));
    const SequenceMesh mesh = sequence_mesh(mode, topology, 24);
    const Predicted plain = predict(a, sequence_mesh(mode, parse_topology("4x2"), 24));
    double want = 0;
    for (const AttentionRows& move : attention_rows(a, mesh)) {
      if (topology.rack_of(move.from) == topology.rack_of(move.to)) continue;
      want += static_cast<double>(move.bytes);
    }
    double before = plain.step.seconds;
    Profile profile = load_profile("a100");
    EXPECT_EQ(predict(a, mesh, "sequence_parallel", profile).step.seconds, before);
    const LinkProfile& machines = profile.cluster_link;
    for (const LinkProfile& uplink : {LinkProfile{machines.bytes_per_second / 16, 1e-4, false},
                                      {machines.bytes_per_second / 16, 1e-4, true},
                                      {machines.bytes_per_second / 64, 1e-4, true}}) {
      profile.rack_link = uplink;
      const SimulatedStep step = predict(a, mesh, "sequence_parallel", profile).step;
      EXPECT_GT(step.seconds, before);
      EXPECT_EQ(step.wire_bytes, plain.step.wire_bytes);
      EXPECT_NEAR(step.rack_bytes, want, 1e-6 * want);
      before = step.seconds;
    }
  }
}

// What the paper says of four machines: less between them, then hidden (sections 4.2, 4.3).
TEST(SequenceSimulation, TorusHidesWhatTasExposes) {
  const Topology topology = parse_topology("4x8");
  const SequenceAttention a = flux(192, topology.ranks());
  const auto of = [&](SpMode mode) { return predict(a, sequence_mesh(mode, topology, 24)); };
  const Predicted usp = of(SpMode::usp), tas = of(SpMode::tas), torus = of(SpMode::torus);
  EXPECT_LT(tas.step.seconds, usp.step.seconds);
  EXPECT_LT(torus.step.seconds, tas.step.seconds);
  EXPECT_LT(torus.exposed(), tas.exposed() / 2);
  // The same work, in more calls.
  EXPECT_LT(torus.computation, 1.05 * tas.computation);
  // No order hides more than the longer of the two leaves room for.
  EXPECT_GE(torus.step.seconds, torus.computation);
}

// The strategy pays against running the same launches one by one.
TEST(SequenceSimulation, StreamsPay) {
  const Topology topology = parse_topology("2x4");
  const SequenceAttention a = flux(96, topology.ranks());
  for (SpMode mode : {SpMode::ring, SpMode::usp, SpMode::torus}) {
    const SequenceMesh mesh = sequence_mesh(mode, topology, 24);
    const double beside = predict(a, mesh).step.seconds;
    const double one_by_one = predict(a, mesh, "sequential").step.seconds;
    EXPECT_LT(beside, one_by_one) << to_string(mode);
  }
}

}  // namespace
}  // namespace braid
