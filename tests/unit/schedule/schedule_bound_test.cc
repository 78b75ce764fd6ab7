// The bound of exposed communication against the closed forms of two ranks.
#include <gtest/gtest.h>

#include <optional>

#include "braid/parallel/attention/lower_attention.h"
#include "braid/schedule/plan_schedules.h"
#include "braid/schedule/profile.h"
#include "braid/schedule/schedule_bound.h"
#include "braid/schedule/simulator.h"
#include "braid/schedule/strategies/registry.h"
#include "unit/schedule/names_catalog.h"

namespace braid {
namespace {

constexpr double kCompute = 1;  // seconds

// All micro-batches' stages as one launch.
class Merged : public OpScheduler {
 public:
  std::string name() const override { return "merged"; }
  void partition(PartitionRules& rules) const override {
    rules.mark(kRingTag);
    rules.mark(kLinkTag);
  }
  void schedule(ScheduleContext& ctx) const override {
    while (!ctx.done()) {
      const Task task = ctx.ready(0)[0];
      std::vector<Task> all = {task};
      for (int mb = 1; mb < ctx.micro_batches(); ++mb) all.push_back(ctx.twin(task, mb));
      const bool moves = task.is(kRingTag) || task.is(kLinkTag);
      ctx.execute(all, {.stream = moves ? Stream::comm : Stream::compute});
    }
  }
};

struct Case : Plan {
  SequenceAttention a;
  Topology topology;
  std::vector<Work> works;  // [micro-batches]

  Case(SpMode mode, const char* text, double n, double t,
       const std::vector<int64_t>& sequences = {1},
       const OpScheduler& strategy = *find_strategy("sequence_parallel"),
       const std::optional<SequenceLayout>& layout = {})
      : topology(parse_topology(text)) {
    a = {.q_heads = 4, .kv_heads = 4, .head_dim = 16, .dtype = DType::bf16, .scale = 1};
    a.batch = 0;
    const NamesCatalog catalog;
    PlanRequest request{
        .catalogs = {&catalog}, .micro_batches = {}, .topology = topology, .price = {}};
    for (int64_t count : sequences) {
      a.batch += count;
      works.push_back({.extents = {.sequence = count}});
      request.micro_batches.push_back({.capacity = {.sequence = count}});
    }
    a.joint_q = a.joint_kv = static_cast<int64_t>(t);
    const int P = topology.ranks();
    a.q = a.kv = layout.value_or(even_layout(static_cast<int64_t>(P * n), P, a.joint_q));
    programs = attention_programs(a, sequence_mesh(mode, topology, a.q_heads, {}));
    plan_schedules(*this, strategy, request);
  }
  double bound(double speed, double latency = 0) const {
    const LinkProfile link{.bytes_per_second = speed, .latency_seconds = latency};
    return bound(link, link);
  }
  double bound(const LinkProfile& machine, const LinkProfile& cluster) const {
    return schedule_bound(*this, topology, works, kCompute, {LinkProfile{}, machine, cluster});
  }
  // Simulated on machines whose links within and between them have these speeds and where nothing
  // else but attention costs: `compute` seconds a rank.
  double ideal_seconds(double machine, double cluster, double compute) const {
    Profile profile;
    profile.memory_bytes_per_second = profile.total_memory_bytes_per_second = 1e18;
    profile.unit_bytes_per_second = 1e18;
    profile.machine_link = {.bytes_per_second = machine};
    profile.cluster_link = {.bytes_per_second = cluster};
    const Work work{.extents = {.sequence = a.batch}};
    double flops = 0;
    const Program& first = programs[0];
    for (const Op& op : first.ops) {
      flops += op.def->cost(op.attrs, first.input_types(op), first.output_types(op), work).flops;
    }
    profile.rates.push_back({.kind = "segment_attention",
                             .dtype = "",
                             .unit = Rate::Unit::flops,
                             .includes_memory = true,
                             .points = {{1, flops / compute}}});
    return simulate(*this, works, CostModel(profile, topology)).seconds;
  }
  // Bytes of `rows` rows of `heads` heads.
  double bytes(double rows, double heads) const { return rows * heads * 16 * 2; }
};

constexpr double kN = 500, kT = 60;  // rows of a rank, of the prefix
constexpr double kSpeeds[] = {1e4, 1e5, 3e5, 6e5, 1e6, 1e7, 1e9};

TEST(ScheduleBound, RingHidesKeysUnderItsOwn) {
  const Case c(SpMode::ring, "1x2", kN, kT);
  const double own = kCompute * (kN + kT) / (2 * kN + kT);
  for (double speed : kSpeeds) {
    const double keys = 2 * c.bytes(kN, 4) / speed, joint = c.bytes(kT / 2, 4) / speed;
    EXPECT_NEAR(c.bound(speed), std::max(0., keys - own) + joint, 1e-9) << speed;
  }
}

TEST(ScheduleBound, UlyssesExposesAll) {
  const Case c(SpMode::ulysses, "2x1", kN, kT);
  for (double speed : kSpeeds) {
    EXPECT_NEAR(c.bound(speed), (4 * c.bytes(kN, 2) + c.bytes(kT, 2)) / speed, 1e-9) << speed;
  }
}

// Who waits for a transfer waits for its way, too: ulysses for inputs and for results. Transfers
// that follow each other do not.
TEST(ScheduleBound, CountsLatencyOfWhatIsWaitedFor) {
  const Case ulysses(SpMode::ulysses, "2x1", kN, kT), ring(SpMode::ring, "1x2", kN, kT);
  const Case torus(SpMode::torus, "2x1", kN, kT);
  for (double latency : {1e-3, 1e-2}) {
    for (double speed : kSpeeds) {
      EXPECT_NEAR(ulysses.bound(speed, latency), ulysses.bound(speed) + 2 * latency, 1e-9) << speed;
      EXPECT_GE(ring.bound(speed, latency), ring.bound(speed) + latency - 1e-9) << speed;
      EXPECT_LE(ring.bound(speed, latency), ring.bound(speed) + 2 * latency + 1e-9) << speed;
    }
    // All keys late: of all transfers the last keys' way is waited for, and the last results'.
    EXPECT_NEAR(torus.bound(1e4, latency), torus.bound(1e4) + 2 * latency, 1e-9);
  }
}

// Of a ring over two machines of two the keys of two ranks cross; the neighbour's come meanwhile.
TEST(ScheduleBound, OtherLinksGoTogether) {
  const Case c(SpMode::ring, "2x2", kN, 0);
  for (double speed : {1e4, 1e5}) {
    const double crossing = 2 * 2 * c.bytes(kN, 4) / speed;
    EXPECT_NEAR(c.bound(LinkProfile{speed}, LinkProfile{speed}), crossing + kCompute / 4 - kCompute,
                1e-9)
        << speed;
  }
}

// Inside a machine results leave from the attention kernel.
TEST(ScheduleBound, UlyssesHidesStoredResults) {
  const Case c(SpMode::ulysses, "1x2", kN, kT);
  for (double speed : kSpeeds) {
    const double q = c.bytes(kN, 2) / speed, joint = c.bytes(kT, 2) / speed;
    EXPECT_NEAR(c.bound(speed), 3 * q + std::max(kCompute, q) - kCompute + joint, 1e-9) << speed;
  }
}

TEST(ScheduleBound, TorusWaitsForWhatAStageNeeds) {
  const Case c(SpMode::torus, "2x1", kN, kT);
  ASSERT_EQ(c.a.q.length(), 2 * kN);
  const double unit = kCompute / ((2 * kN + kT) * (2 * kN + kT));
  for (double speed : kSpeeds) {
    const double q = c.bytes(kN, 2) / speed, joint = c.bytes(kT, 2) / speed;
    double end = unit * (kN + kT) * (kN + kT);       // own queries, own keys
    end = std::max(end, q) + unit * kN * (kN + kT);  // the peer's queries
    end = std::max(end, 3 * q) + unit * (kN + kT) * kN;
    const double sent = end + q + joint;
    end = std::max(end + unit * kN * kN, sent);
    EXPECT_NEAR(c.bound(speed), end - kCompute, 1e-9) << speed;
  }
}

TEST(ScheduleBound, IsWhatAnIdealMachineTakes) {
  for (double speed : kSpeeds) {
    for (SpMode mode : kSpModes) {
      const Case c(mode, "2x1", kN, kT);
      const double seconds = c.ideal_seconds(speed, speed, kCompute);
      EXPECT_NEAR(c.bound(speed), seconds - kCompute, 1e-3 * seconds)
          << to_string(mode) << " at " << speed;
    }
  }
}

// Micro-batches by turns and as one launch, of which the second holds more.
TEST(ScheduleBound, CountsEveryMicroBatch) {
  for (double speed : kSpeeds) {
    for (SpMode mode : kSpModes) {
      const Merged merged;
      const Case turns(mode, "2x1", kN, kT, {1, 3}), whole(mode, "2x1", kN, kT, {1, 3}, merged),
          one(mode, "2x1", kN, kT, {4}, merged);
      const double seconds = turns.ideal_seconds(speed, speed, kCompute);
      SCOPED_TRACE(fmt::format("{} at {}", to_string(mode), speed));
      EXPECT_LE(turns.bound(speed), seconds - kCompute + 1e-3 * seconds);
      EXPECT_GE(turns.bound(speed), 0.95 * (seconds - kCompute) - 1e-3 * seconds);
      EXPECT_NEAR(whole.bound(speed), one.bound(speed), 1e-9);
      EXPECT_GE(whole.bound(speed), turns.bound(speed) - 1e-9);
    }
  }
}

// One row, which is rank 0's: ranks 2 and 3 read it through one port.
TEST(Simulator, ReadersOfOneRankShareItsPort) {
  const Case c(SpMode::ring, "2x2", 0.25, 0);
  ASSERT_EQ(c.a.kv.rows(0), 1);
  ASSERT_EQ(c.a.kv.length(), 1);
  const double speed = 1e4, keys = 2 * c.bytes(1, 4) / speed;
  EXPECT_NEAR(c.ideal_seconds(1e18, speed, 1e-9), 2 * keys, 1e-3 * keys);
}

// Rank 0 has two of four heads and no rows: ranks 1 and 2 push three heads of each of their rows of
// q, k and v, two of them to rank 0, whose port takes four. One port for each sender alone would be
// done with three, and with one head of results, after ten.
TEST(Simulator, SendersToOneRankShareItsPort) {
  const Case c(SpMode::ulysses, "3x1", kN, 0, {1}, *find_strategy("sequence_parallel"),
               contiguous_layout({0, 500, 500}));
  const double speed = 1e4, head = c.bytes(kN, 1) / speed;
  EXPECT_GE(c.ideal_seconds(1e18, speed, 1e-9), 3 * 4 * head);
}

// Over two machines the steps of a ring leave each port one reader.
TEST(Simulator, RingStepsShareNoPort) {
  const Case c(SpMode::ring, "2x2", kN, 0);
  const double speed = 1e4, keys = 2 * c.bytes(kN, 4) / speed;
  EXPECT_NEAR(c.ideal_seconds(1e18, speed, 1e-9), 2 * keys, 1e-3 * keys);
}

}  // namespace
}  // namespace braid
