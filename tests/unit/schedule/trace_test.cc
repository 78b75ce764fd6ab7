#include "braid/schedule/trace.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "braid/base/error.h"
#include "braid/ops/comm.h"
#include "braid/schedule/simulator.h"
#include "unit/schedule/toy_ops.h"

namespace braid {
namespace {

using toy::kSend;
using toy::kWork;
using toy::rank_of;
constexpr double kNear = 1e-6;

// a, its transfer beside b, then c that needs the transfer.
toy::Rank four() {
  return rank_of({{&kWork, {.flops = 1}},
                  {&kSend, {.wire_bytes = 2}, Stream::comm, {0}, 0},
                  {&kWork, {.flops = 3}},
                  {&kWork, {.flops = 1}, Stream::compute, {1}, 1}});
}

// Refers to `times`, which has to outlive it.
Timeline timeline_of(const toy::World& world, const std::vector<std::vector<LaunchTime>>& times) {
  Timeline timeline{.title = "test", .works = world.works};
  for (size_t r = 0; r < world.plan.programs.size(); ++r) {
    timeline.ranks.push_back({&world.plan.programs[r], &world.plan.schedules[r], times[r]});
  }
  return timeline;
}

// In a divided batch equal ops of two micro-batches differ by name and colour.
TEST(Trace, SlicesNameTheirMicroBatch) {
  toy::World world({four()});
  Schedule& schedule = world.plan.schedules[0];
  schedule.micro_batches.resize(2);
  schedule.launches[2].micro_batch = 1;
  world.works.push_back(world.works[0]);
  const std::vector<LaunchTime> times = {{0, 1}, {1, 3}, {1, 4}, {4, 5}};
  std::ostringstream out;
  write_trace(out, timeline_of(world, {times}));
  std::vector<std::string> names;
  std::set<std::string> colours;
  const auto json = nlohmann::json::parse(out.str());
  for (const auto& event : json.at("traceEvents")) {
    if (event.at("ph") != "X") continue;
    names.push_back(event.at("name"));
    colours.insert(event.at("cname"));
  }
  EXPECT_EQ(names, (std::vector<std::string>{"step0 work, mb 0", "step1 send, mb 0",
                                             "step2 work, mb 1", "step3 work, mb 0"}));
  EXPECT_EQ(colours.size(), 3u) << "two micro-batches, and communication";
}

// A launch that counts expert rows says how even they are.
TEST(Trace, SlicesHaveTheLoadOfExperts) {
  const toy::World world({four()});
  const std::vector<LaunchTime> times = {{0, 1}, {1, 3}, {1, 4}, {4, 5}};
  const std::vector<ExpertRows> counted = {{.launch = 2, .first = 4, .rows = {1, 0, 6, 1}}};
  const std::vector<std::vector<LaunchTime>> times_of_ranks = {times};
  Timeline timeline = timeline_of(world, times_of_ranks);
  timeline.ranks[0].experts = counted;
  std::ostringstream out;
  write_trace(out, timeline);
  int with_load = 0;
  const auto json = nlohmann::json::parse(out.str());
  for (const auto& event : json.at("traceEvents")) {
    if (event.at("ph") != "X" || !event.at("args").contains("experts")) continue;
    ++with_load;
    EXPECT_EQ(event.at("name"), "step2 work");
    EXPECT_EQ(event.at("args").at("experts"),
              nlohmann::json::parse(
                  R"({"first": 4, "max_over_mean": 3.0, "idle": 1, "rows": [1, 0, 6, 1]})"));
  }
  EXPECT_EQ(with_load, 1);
}

TEST(Trace, HasALaneForEachRankAndStream) {
  const toy::World world({four(), four()});
  const CostModel model(toy::seconds_profile(), toy::machine_of(2));
  const SimulatedStep step = simulate(world.plan, world.works, model);
  std::ostringstream out;
  write_trace(out, timeline_of(world, step.times));
  const auto json = nlohmann::json::parse(out.str());

  std::set<std::pair<int, int>> lanes, named;
  std::map<int, double> sent, last_ts;
  int slices = 0;
  for (const auto& event : json.at("traceEvents")) {
    const int pid = event.at("pid");
    const std::string phase = event.at("ph");
    if (phase == "M") {
      if (event.at("name") == "thread_name") named.insert({pid, event.at("tid")});
      continue;
    }
    EXPECT_GE(event.at("ts").get<double>(), 0);
    if (phase == "C") {
      EXPECT_EQ(event.at("name"), "wire bytes");
      EXPECT_GE(event.at("args").at("sent"), sent[pid]);
      EXPECT_GE(event.at("ts"), last_ts[pid]);
      sent[pid] = event.at("args").at("sent");
      last_ts[pid] = event.at("ts");
      continue;
    }
    ASSERT_EQ(phase, "X");
    ++slices;
    lanes.insert({pid, event.at("tid")});
    const auto launch = event.at("args").at("launch").get<size_t>();
    const LaunchTime& t = step.times[static_cast<size_t>(pid)][launch];
    EXPECT_NEAR(event.at("ts").get<double>(), t.begin * 1e6, 1);
    EXPECT_NEAR(event.at("dur").get<double>(), t.seconds() * 1e6, 1);
    EXPECT_EQ(event.at("name"), fmt::format("step{} {}", launch, launch == 1 ? "send" : "work"));
    EXPECT_EQ(event.at("cat"), launch == 1 ? "communication" : "computation");
    EXPECT_EQ(event.at("args").at("micro_batch"), "0");
  }
  EXPECT_EQ(slices, 8);
  EXPECT_EQ(lanes, (std::set<std::pair<int, int>>{{0, 0}, {0, 1}, {1, 0}, {1, 1}}));
  EXPECT_EQ(named, lanes) << "no lane for a stream that nothing runs on";
  EXPECT_EQ(sent, (std::map<int, double>{{0, 2}, {1, 2}}));

  const auto& summary = json.at("otherData");
  EXPECT_NEAR(summary.at("step_seconds").get<double>(), 5, kNear);
  EXPECT_NEAR(summary.at("ranks").at(1).at("busy_seconds").at("compute").get<double>(), 5, kNear);
  EXPECT_EQ(summary.at("ranks").at(0).at("wire_bytes"), 2);
}

TEST(Trace, SpansBesideTheLaunchesHaveLanesOfTheirOwn) {
  const toy::World world({four(), four()});
  const CostModel model(toy::seconds_profile(), toy::machine_of(2));
  const SimulatedStep step = simulate(world.plan, world.works, model);
  std::ostringstream out;
  TraceWriter writer(out);
  writer.add(timeline_of(world, step.times));
  const std::vector<TraceSpan> host = {{"enqueue 1", 6, 7}, {"enqueue 2", 7, 9}};
  const std::vector<TraceSpan> device = {{"step 1", 6.5, 8}};
  writer.add(0, "host", host);
  writer.add(0, "steps", device);
  writer.add(0, "host", device);
  writer.finish();
  const auto json = nlohmann::json::parse(out.str());
  std::map<std::string, int> lanes;  // by name
  std::map<int, std::vector<std::string>> slices;
  for (const auto& event : json.at("traceEvents")) {
    const int tid = event.value("tid", -1);
    if (event.at("name") == "thread_name") lanes[event.at("args").at("name")] = tid;
    if (event.value("cat", "") != "loop") continue;
    slices[tid].push_back(event.at("name"));
    if (event.at("name") != "enqueue 2") continue;
    EXPECT_NEAR(event.at("ts").get<double>(), 7e6, 1);
    EXPECT_NEAR(event.at("dur").get<double>(), 2e6, 1);
  }
  EXPECT_EQ(slices[lanes.at("host")],
            (std::vector<std::string>{"enqueue 1", "enqueue 2", "step 1"}));
  EXPECT_EQ(slices[lanes.at("steps")], (std::vector<std::string>{"step 1"}));
  EXPECT_NEAR(json.at("otherData").at("step_seconds").get<double>(), 5, kNear);
}

TEST(Trace, CountsEachRanksShareOfTokens) {
  // 5 tokens of 16 bytes on 2 ranks: 3 and 2. A rank sends what is not its own.
  const auto rank = [] {
    Builder b("sharded", {8, 1, 1, 4});
    const ValueId x = b.input("x", {DType::f32, {8, 4}, BatchAxis::token});
    const ValueId y = b.op1(ops::kReduceScatter, Attrs::of(ops::CommAttrs{"tp", 2}), {x});
    Schedule schedule{.strategy = "toy", .micro_batches = {{b.capacity()}}};
    schedule.launches.push_back({.op = 0});
    return toy::Rank{b.finish({y}), schedule};
  };
  toy::World world({rank(), rank()});
  world.works[0].extents = {5, 1, 1};
  std::ostringstream out;
  write_trace(out, timeline_of(world, {{{0, 1}}, {{0, 1}}}));
  const auto json = nlohmann::json::parse(out.str());
  EXPECT_EQ(json.at("otherData").at("ranks").at(0).at("wire_bytes"), 2 * 16);
  EXPECT_EQ(json.at("otherData").at("ranks").at(1).at("wire_bytes"), 3 * 16);
}

TEST(Trace, AnOutputThatTakesNoMoreIsAnError) {
  const toy::World world({four()});
  const std::vector<std::vector<LaunchTime>> times = {{{0, 1}, {1, 3}, {1, 4}, {4, 5}}};
  for (const char* path : {"/dev/full", "/no/such/folder/trace.json"}) {
    try {
      write_trace(std::string(path), timeline_of(world, times));
      FAIL() << path;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::kResource);
      EXPECT_EQ(std::string(e.what()).find(fmt::format("cannot write the trace {}: ", path)), 0u)
          << e.what();
    }
  }
}

TEST(Trace, NamesOfAnyBytesStayJson) {
  toy::Rank rank = four();
  rank.program.ops[0].scope = "a\"\n\xff";
  const std::vector<LaunchTime> times = {{0, 1}, {1, 3}, {1, 4}, {4, 5}};
  std::ostringstream out;
  write_trace(out, {.title = "\xc3",
                    .ranks = {{&rank.program, &rank.schedule, times}},
                    .works = {{.extents = {1, 1, 1}}}});
  EXPECT_TRUE(nlohmann::json::accept(out.str()));
}

}  // namespace
}  // namespace braid
