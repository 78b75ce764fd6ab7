#include "braid/schedule/simulator.h"

#include <gtest/gtest.h>

#include <random>

#include "braid/base/error.h"
#include "braid/ops/fused_comm.h"
#include "braid/schedule/fair_share.h"
#include "unit/schedule/toy_ops.h"

namespace braid {
namespace {

using toy::kCopy;
using toy::kSend;
using toy::kWork;
using toy::rank_of;

constexpr double kNear = 1e-6;

SimulatedStep run(const toy::World& world, Profile profile = toy::seconds_profile(),
                  int machines = 1) {
  Topology topology;
  topology.machines = machines;
  topology.devices = world.plan.ranks() / machines;
  return simulate(world.plan, world.works, CostModel(std::move(profile), topology));
}

void expect_time(const SimulatedStep& step, size_t rank, size_t launch, double begin, double end) {
  EXPECT_NEAR(step.times[rank][launch].begin, begin, kNear) << "rank " << rank << ", " << launch;
  EXPECT_NEAR(step.times[rank][launch].end, end, kNear) << "rank " << rank << ", " << launch;
}

TEST(Simulator, AStreamRunsOneAfterTheOther) {
  Profile profile = toy::seconds_profile();
  profile.launch_seconds = 0.5;
  profile.step_seconds = 0.25;
  const SimulatedStep step =
      run(toy::World({rank_of({{&kWork, {.flops = 1}}, {&kCopy, {.bytes = 2}}, {&kWork, {3}}})}),
          profile);
  expect_time(step, 0, 0, 0, 1.5);
  expect_time(step, 0, 1, 1.5, 4);
  expect_time(step, 0, 2, 4, 7.5);
  EXPECT_NEAR(step.seconds, 7.75, kNear);
}

TEST(Simulator, TheLongerOfComputationAndMemoryCounts) {
  const SimulatedStep step = run(toy::World({rank_of({{&kWork, {.flops = 2, .bytes = 5}}})}));
  EXPECT_NEAR(step.seconds, 5, kNear);
}

constexpr const OpDef* kChainOps[] = {&kWork, &kCopy, &kSend};
constinit const JoinForm kChain = {.name = "chain", .ops = kChainOps};

// A group is one launch: its time is the first's, and it is launched once.
TEST(Simulator, AGroupIsOneLaunch) {
  Profile profile = toy::seconds_profile();
  profile.launch_seconds = 0.5;
  toy::World world({rank_of({{&kWork, {.flops = 1}},
                             {&kWork, {.flops = 2}},
                             {&kCopy, {.bytes = 3}, Stream::compute, {}, 1},
                             {&kWork, {.flops = 1}, Stream::compute, {}, 2},
                             {&kWork, {.flops = 1}}})});
  const double apart = run(world, profile).seconds;
  EXPECT_NEAR(apart, 5 * .5 + 8, kNear);
  world.plan.schedules[0].groups = {{.first = 1, .count = 3, .form = &kChain, .kernel = "chain"}};
  const SimulatedStep step = run(world, profile);
  EXPECT_NEAR(step.seconds, apart - 2 * .5, kNear);
  expect_time(step, 0, 0, 0, 1.5);
  expect_time(step, 0, 1, 1.5, 8);
  expect_time(step, 0, 2, 8, 8);
  expect_time(step, 0, 3, 8, 8);
  expect_time(step, 0, 4, 8, 9.5);
}

// A backend's own prices hear which launches are members.
TEST(Simulator, OwnPricesOfMembers) {
  toy::World world({rank_of({{&kWork, {.flops = 1}},
                             {&kWork, {.flops = 2}},
                             {&kWork, {.flops = 3}, Stream::compute, {}, 1}})});
  world.plan.schedules[0].groups = {{.first = 1, .count = 2, .form = &kChain, .kernel = "chain"}};
  const SimulatedStep step =
      simulate(world.plan, world.works, CostModel(toy::seconds_profile(), toy::machine_of(1)),
               [](const Program&, const Op&, bool grouped) -> std::optional<OwnPrice> {
                 return OwnPrice{.fixed = grouped ? .25 : 4, .memory = 2.5};
               });
  EXPECT_NEAR(step.seconds, 6.5 + 2.75 + 3.25, kNear) << "the last computes for 3";
  expect_time(step, 0, 1, 6.5, 12.5);
}

// Ranks meet inside a group as they do outside.
TEST(Simulator, RanksMeetInsideAGroup) {
  const auto rank = [](double flops) {
    toy::Rank rank = rank_of({{&kWork, {.flops = flops}},
                              {&kSend, {.wire_bytes = 2}, Stream::compute, {}, 0},
                              {&kWork, {.flops = 1}, Stream::compute, {}, 1}});
    rank.schedule.groups = {{.first = 0, .count = 3, .form = &kChain, .kernel = "chain"}};
    return rank;
  };
  const SimulatedStep step = run(toy::World({rank(1), rank(4)}));
  expect_time(step, 0, 0, 0, 7);
  expect_time(step, 1, 0, 0, 7);
}

TEST(Simulator, StreamsRunBesideEachOtherAndWaitAsTold) {
  // a, then its sum on the wire under b, then d, which needs the sum.
  const auto rank = rank_of({{&kWork, {.flops = 1}},
                             {&kSend, {.wire_bytes = 2}, Stream::comm, {0}, 0},
                             {&kWork, {.flops = 3}},
                             {&kWork, {.flops = 1}, Stream::compute, {1}, 1}});
  const toy::World world({rank, rank});
  const SimulatedStep step = run(world);
  for (size_t r : {0u, 1u}) {
    expect_time(step, r, 0, 0, 1);
    expect_time(step, r, 1, 1, 3);
    expect_time(step, r, 2, 1, 4);
    expect_time(step, r, 3, 4, 5);
  }
  EXPECT_EQ(step.wire_bytes[static_cast<size_t>(LinkClass::machine)], 4);
}

SimulatedStep run_without_communication(const toy::World& world, const Profile& profile) {
  return simulate_without_communication(world.plan, world.works,
                                        CostModel(profile, toy::machine_of(world.plan.ranks())));
}

TEST(Simulator, WithoutCommunicationNothingIsSentAndNobodyWaits) {
  const auto rank = [](double compute) {
    return rank_of({{&kWork, {.flops = compute}},
                    {&kSend, {.wire_bytes = 2}, Stream::comm, {0}, 0},
                    {&kWork, {.flops = 3}, Stream::compute, {1}, 1}});
  };
  const toy::World world({rank(1), rank(4)});
  Profile profile = toy::seconds_profile();
  profile.launch_seconds = 0.5;  // not of ops that do nothing
  profile.machine_link.latency_seconds = 7;
  const SimulatedStep step = run_without_communication(world, profile);
  expect_time(step, 0, 1, 1.5, 1.5);
  expect_time(step, 0, 2, 1.5, 5);
  expect_time(step, 1, 2, 4.5, 8);
  EXPECT_EQ(step.wire_bytes, (std::array<double, 3>{}));
}

TEST(Simulator, ACollectiveWaitsForItsLastRank) {
  const auto rank = [](double compute) {
    return rank_of({{&kWork, {.flops = compute}}, {&kSend, {.wire_bytes = 2}, {}, {}, 0}});
  };
  const SimulatedStep step = run(toy::World({rank(1), rank(3), rank(2)}));
  for (size_t r = 0; r < 3; ++r) EXPECT_NEAR(step.times[r][1].end, 5, kNear);
  EXPECT_NEAR(step.times[0][1].begin, 1, kNear) << "it begins to wait";
  EXPECT_NEAR(step.seconds, 5, kNear);
}

TEST(Simulator, TheSlowestRankSetsTheCollectivesPace) {
  const auto rank = [](double wire) { return rank_of({{&kSend, {.wire_bytes = wire}}}); };
  EXPECT_NEAR(run(toy::World({rank(1), rank(4)})).seconds, 4, kNear);
}

TEST(Simulator, TransfersShareTheirLink) {
  const auto rank = rank_of(
      {{&kSend, {.wire_bytes = 2}, Stream::comm}, {&kSend, {.wire_bytes = 1}, Stream::side}});
  Profile profile = toy::seconds_profile();
  SimulatedStep step = run(toy::World({rank, rank}), profile);
  expect_time(step, 0, 1, 0, 2);             // half the link each
  expect_time(step, 0, 0, 0, 3);             // then all of it
  profile.machine_link.latency_seconds = 1;  // is nobody's loss
  step = run(toy::World({rank, rank}), profile);
  expect_time(step, 1, 1, 0, 3);
  expect_time(step, 1, 0, 0, 4);
}

TEST(Simulator, KernelsShareTheirDevice) {
  const auto pair = [](const OpDef& a, toy::CostAttrs a_cost, const OpDef& b,
                       toy::CostAttrs b_cost) {
    return toy::World({rank_of({{&a, a_cost}, {&b, b_cost, Stream::side}})});
  };
  // Twice the same resource: half the speed. Two resources: no loss.
  EXPECT_NEAR(run(pair(kWork, {.flops = 2}, kWork, {.flops = 2})).seconds, 4, kNear);
  EXPECT_NEAR(run(pair(kCopy, {.bytes = 2}, kCopy, {.bytes = 2})).seconds, 4, kNear);
  EXPECT_NEAR(run(pair(kWork, {.flops = 2}, kCopy, {.bytes = 2})).seconds, 2, kNear);
  // Memory 4 s, computation 4 s and half of the memory: 1.5 of the memory is wanted, so both run at
  // 2/3.
  EXPECT_NEAR(run(pair(kCopy, {.bytes = 4}, kWork, {.flops = 4, .bytes = 2})).seconds, 6, kNear);
}

TEST(Simulator, CommunicationTakesItsUnitsFromTheKernelsBesideIt) {
  Profile profile = toy::seconds_profile();
  profile.units = 4;
  profile.stream_units = {4, 4, 4};
  profile.unit_bytes_per_second = 1;  // one unit saturates the link
  const auto rank = rank_of({{&kWork, {.flops = 4}}, {&kSend, {.wire_bytes = 4}, Stream::comm}});
  // 4 + 1 units are wanted of 4: both run at 0.8.
  EXPECT_NEAR(run(toy::World({rank, rank}), profile).seconds, 5, kNear);
  profile.unit_bytes_per_second = 0.25;  // all four, and what they move takes as long as the wire
  EXPECT_NEAR(run(toy::World({rank, rank}), profile).seconds, 8, kNear);
}

TEST(Simulator, ACollectiveKeepsUnitsFromWhatComputesBesideIt) {
  Profile profile = toy::seconds_profile();
  profile.units = 4;
  profile.stream_units = {4, 4, 4};
  profile.unit_bytes_per_second = 1;
  profile.collective_units = 3;
  const auto beside = rank_of({{&kWork, {.flops = 4}}, {&kSend, {.wire_bytes = 4}, Stream::comm}});
  // 4 + 3 units are wanted of 4, whatever the transfer needs.
  EXPECT_NEAR(run(toy::World({beside, beside}), profile).seconds, 7, kNear);
  const auto alone = rank_of({{&kSend, {.wire_bytes = 4}, Stream::comm}});
  EXPECT_NEAR(run(toy::World({alone, alone}), profile).seconds, 4, kNear);
}

TEST(Simulator, RanksOfACpuShareIt) {
  const auto rank = rank_of({{&kCopy, {.bytes = 3}}});
  Profile profile = toy::seconds_profile();
  EXPECT_NEAR(run(toy::World({rank, rank}), profile).seconds, 3, kNear);
  profile.shared_units = true;
  EXPECT_NEAR(run(toy::World({rank, rank}), profile).seconds, 6, kNear);
  EXPECT_NEAR(run(toy::World({rank, rank}), profile, 2).seconds, 3, kNear) << "two machines";
  profile.total_memory_bytes_per_second = 1.5;
  EXPECT_NEAR(run(toy::World({rank, rank}), profile).seconds, 4, kNear);
}

TEST(Simulator, MachinesAreJoinedByAnotherLink) {
  Profile profile = toy::seconds_profile();
  profile.cluster_link = {0.5, 0, false};
  const auto rank = rank_of({{&kSend, {.wire_bytes = 3}}});
  const std::vector<toy::Rank> ranks(4, rank);
  // Of 3 bytes 1 goes to the neighbour in the machine, 2 leave it.
  SimulatedStep step = run(toy::World(ranks), profile, 2);
  EXPECT_NEAR(step.seconds, 4, kNear);
  EXPECT_NEAR(step.wire_bytes[static_cast<size_t>(LinkClass::machine)], 4, kNear);
  EXPECT_NEAR(step.wire_bytes[static_cast<size_t>(LinkClass::cluster)], 8, kNear);
  profile.cluster_link.shared_port = true;  // 2 ranks of a machine through one port
  EXPECT_NEAR(run(toy::World(ranks), profile, 2).seconds, 8, kNear);
}

SimulatedStep run_on(const char* machines, const toy::World& world, const Profile& profile) {
  return simulate(world.plan, world.works, CostModel(profile, parse_topology(machines)));
}

// Without a link of their own, racks change nothing.
TEST(Simulator, RacksAreJoinedByTheirUplinks) {
  Profile profile = toy::seconds_profile();
  profile.cluster_link = {0.5, 0, false};
  const toy::World world(std::vector<toy::Rank>(4, rank_of({{&kSend, {.wire_bytes = 3}}})));
  const SimulatedStep plain = run_on("4x1", world, profile);
  SimulatedStep step = run_on("2x2x1", world, profile);
  EXPECT_EQ(step.seconds, plain.seconds);
  EXPECT_EQ(step.wire_bytes, plain.wire_bytes);
  EXPECT_EQ(plain.rack_bytes, 0);
  EXPECT_NEAR(step.rack_bytes, 8, kNear) << "of each rank's 3 bytes 2";
  // 3 bytes leave each machine in 6 s, 2 of them the rack.
  profile.rack_link = {1, 0, false};
  EXPECT_NEAR(run_on("2x2x1", world, profile).seconds, 6, kNear) << "not the narrowest";
  profile.rack_link = {0.25, 0, false};
  EXPECT_NEAR(run_on("2x2x1", world, profile).seconds, 8, kNear);
  profile.rack_link = {0.25, 0, true};  // for both ranks of a rack
  EXPECT_NEAR(run_on("2x2x1", world, profile).seconds, 16, kNear);
  profile.rack_link = {1, 5, false};
  EXPECT_NEAR(run_on("2x2x1", world, profile).seconds, 11, kNear);
  EXPECT_EQ(run_on("4x1", world, profile).seconds, plain.seconds) << "there is one rack";
}

TEST(Simulator, AFusedOpSendsTilesAsTheyAreMade) {
  // y [4, 8] f32 = x [4, 2] W^T: 128 FLOP; two-shot and one-shot both send 128 bytes a rank.
  Builder b("fused", {4, 1, 1});
  const ValueId x = b.input("x", {DType::f32, {4, 2}, BatchAxis::token});
  const ValueId w = b.weight("w", {DType::f32, {8, 2}});
  const ValueId y =
      b.op1(ops::kLinearAllReduce, Attrs::of(ops::LinearAllReduceAttrs{"tp", 2}), {x, w, kNoValue});
  Schedule schedule{.strategy = "toy", .micro_batches = {{b.capacity()}}};
  schedule.launches.push_back({.op = 0});
  const toy::Rank rank = {b.finish({y}), schedule};
  toy::World world({rank, rank});
  world.works[0].extents.token = 4;
  Profile profile = toy::seconds_profile();
  profile.memory_bytes_per_second = profile.total_memory_bytes_per_second = 1e9;
  profile.rates = {{"linear", "f32", Rate::Unit::flops, false, {{1, 2}}}};
  const double body = (2 * 4 * 8 * 2 + 16) / 2.0, wire = 128;  // the sums are FLOPs too
  const SimulatedStep step = run(world, profile);
  EXPECT_NEAR(step.seconds, wire + body / 8, 1e-3);
  EXPECT_NEAR(run_without_communication(world, profile).seconds, body, 1e-3);
  profile.product_tiles = 1;  // a product, then a sum: two launches
  profile.launch_seconds = 3;
  EXPECT_NEAR(run(world, profile).seconds, wire + body + 6, 1e-3);
}

TEST(Simulator, SchedulesThatNeverMeetAreRefused) {
  const auto with = rank_of({{&kWork, {.flops = 1}}, {&kSend, {.wire_bytes = 1}}});
  const auto without = rank_of({{&kWork, {.flops = 1}}, {&kWork, {.flops = 1}}});
  try {
    run(toy::World({with, without}));
    FAIL() << "it ended";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::kInvalidArgument);
    EXPECT_NE(std::string(e.what()).find("rank 0: launch 1 (send at 'step1')"), std::string::npos)
        << e.what();
  }
}

TEST(Simulator, RandomSchedulesKeepTheirBounds) {
  const auto seed = static_cast<uint64_t>(std::random_device{}());
  SCOPED_TRACE(fmt::format("seed {}", seed));
  std::mt19937_64 rng(seed);
  for (int round = 0; round < 40; ++round) {
    // The same on each of three ranks; each launch waits for some earlier ones.
    std::vector<toy::Step> steps;
    double serial = 0;
    std::array<double, 3> least{};
    for (int i = 0; i < 30; ++i) {
      const double size = 1 + static_cast<double>(rng() % 5);
      const auto kind = rng() % 3;
      toy::Step step{kind == 0 ? &kWork : kind == 1 ? &kCopy : &kSend, {}, kStreams[rng() % 3]};
      (kind == 0 ? step.cost.flops : kind == 1 ? step.cost.bytes : step.cost.wire_bytes) = size;
      for (int w = 0; w < i; ++w) {
        if (rng() % 8 == 0 && steps[static_cast<size_t>(w)].stream != step.stream) {
          step.waits.push_back(w);
        }
      }
      serial += size;
      least[kind] += size;
      steps.push_back(std::move(step));
    }
    const toy::Rank rank = rank_of(steps);
    const toy::World world({rank, rank, rank});
    const SimulatedStep step = run(world);
    EXPECT_LE(step.seconds, serial + kNear);
    for (double resource : least) EXPECT_GE(step.seconds, resource - kNear);
    std::array<double, 3> stream_end{};
    for (size_t i = 0; i < steps.size(); ++i) {
      const LaunchTime& t = step.times[1][i];
      auto& end = stream_end[static_cast<size_t>(steps[i].stream)];
      EXPECT_GE(t.begin, end - kNear);
      end = t.end;
      for (int w : steps[i].waits) {
        EXPECT_GE(t.begin, step.times[1][static_cast<size_t>(w)].end - kNear);
      }
    }
    const SimulatedStep again = run(world);
    EXPECT_EQ(step.seconds, again.seconds);
    // It may be longer than `step`: a launch that comes earlier can take its turn from another.
    const double silent = run_without_communication(world, toy::seconds_profile()).seconds;
    EXPECT_LE(silent, serial - least[2] + kNear);
    EXPECT_GE(silent, std::max(least[0], least[1]) - kNear);
  }
}

TEST(FairShare, GivesWhatTheFirstLimitLeaves) {
  // a wants all of 0; b half of 0 and all of 1; c all of 1. Level 0.5 uses up resource 1, then a
  // takes what b leaves of 0.
  FairShare share(2);
  const FairShare::Use a[] = {{0, 1}}, b[] = {{0, 0.5}, {1, 1}}, c[] = {{1, 1}};
  EXPECT_EQ(share.begin(3, a), 0);
  EXPECT_EQ(share.begin(2, b), 1);
  EXPECT_EQ(share.begin(2, c), 2);
  std::vector<int> ended;
  EXPECT_NEAR(share.advance(ended), 4, kNear);
  EXPECT_EQ(ended, (std::vector<int>{0, 1, 2})) << "a at 0.75, b and c at 0.5";
  EXPECT_TRUE(share.idle());
}

}  // namespace
}  // namespace braid
