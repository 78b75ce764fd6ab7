// The verifier's rules of memory and of merged launches, each on a Schedule that breaks it alone.
// The suites are those of verifier_test.cc, which says for which sizes they run.
#include "braid/ops/join_sequence.h"
#include "braid/ops/norm.h"
#include "braid/schedule/memory_plan.h"
#include "unit/schedule/verifier_rules.h"

namespace braid::testing_schedule {
namespace {

TEST_P(VerifierRules, MemoryTwoLiveValues) {
  Planned plan = good();
  const int i = plan.find("attention", last());
  on_all(plan, [&](Schedule& s) {
    const Op& op = s.op(plan.programs[0], at(s, i));
    offset(s, op.outputs[0], last()) = offset(s, op.inputs[0], last());
  });
  expect_refused([&] { plan.verify(); }, {"at 'layers.0.attn'", "micro-batch", "memory: bytes [",
                                          "neither is done with before the other begins"});
}

TEST_P(VerifierRules, MemoryScratchOverAValue) {
  Planned plan = good();
  const int i = plan.find("attention", last());
  on_all(plan, [&](Schedule& s) {
    s.memory.workspace_offset[static_cast<size_t>(i)] =
        offset(s, s.op(plan.programs[0], at(s, i)).outputs[0], last());
    s.memory.arena_bytes += 1000;
  });
  expect_refused([&] { plan.verify(); }, {"attention at 'layers.0.attn'", "memory: bytes ["});
}

TEST_P(VerifierRules, MemoryOfAnInputOrAnOutputIsTheHosts) {
  Planned plan = good();
  const ValueId input = *plan.programs[0].find("page_table");
  const int i = plan.find("linear", last());  // long before the input is read
  on_all(plan, [&](Schedule& s) {
    for (int mb = 0; mb < M(); ++mb) {
      offset(s, input, mb) = offset(s, s.op(plan.programs[0], at(s, i)).outputs[0], last());
    }
  });
  expect_refused([&] { plan.verify(); }, {"memory: bytes ["});

  Planned late = good();  // an output's place, used after nobody reads the output any more
  const ValueId output = late.programs[0].outputs[0];
  const ValueId input2 = *late.programs[0].find("token_ids");
  on_all(late, [&](Schedule& s) {
    for (int mb = 0; mb < M(); ++mb) offset(s, output, mb) = offset(s, input2, mb);
    s.memory.arena_bytes += 1 << 20;
  });
  expect_refused([&] { late.verify(); }, {"memory: bytes ["});
}

TEST_P(VerifierRules, MemoryInsideTheArenaAndAligned) {
  for (int64_t by : {-(int64_t{1} << 20), int64_t{1} << 20, int64_t{4}}) {
    Planned plan = good();
    const int i = plan.find("attention", last());
    on_all(plan, [&](Schedule& s) {
      offset(s, s.op(plan.programs[0], at(s, i)).outputs[0], last()) += by;
    });
    expect_refused([&] { plan.verify(); },
                   {"attention at 'layers.0.attn'", fmt::format("micro-batch {}", last()),
                    "memory: %", "in an arena of"});
    Planned scratch = good();
    on_all(scratch, [&](Schedule& s) {
      s.memory.workspace_offset[static_cast<size_t>(scratch.find("attention", last()))] += by;
    });
    expect_refused([&] { scratch.verify(); },
                   {"attention at 'layers.0.attn'", fmt::format("micro-batch {}", last()),
                    "memory: scratch", "in an arena of"});
  }
}

// All micro-batches in one launch.
TestStrategy merged_whole(const std::vector<std::vector<std::string>>& kinds) {
  return strategy(
      [](ScheduleContext& ctx) {
        while (!ctx.done()) {
          const Task task = ctx.ready(0).at(0);
          std::vector<Task> tasks;
          for (int mb = 0; mb < ctx.micro_batches(); ++mb) tasks.push_back(ctx.twin(task, mb));
          ctx.execute(tasks);
        }
      },
      kinds);
}

TEST_P(VerifierMicroBatches, MemoryOfInputsAndOutputsIsMerged) {
  for (bool input : {true, false}) {
    Planned plan = good();
    const ValueId id = input ? *plan.programs[0].find("rows") : plan.programs[0].outputs[0];
    on_all(plan, [&](Schedule& s) { s.memory.merged[static_cast<size_t>(id)] = false; });
    expect_refused(
        [&] { plan.verify(); },
        {"micro-batch 0", fmt::format("memory: %{} is the host's and is not merged", id)});
  }
}

// y = x + x is the only part of a joined value, which is read while y's place must not be reused.
TEST(VerifierMemory, TheOnlyPartOfAJoinedValueLiesWhereTheWholeDoes) {
  Builder b("join", {1, 1, 1});
  const ValueId x = b.input("x", {DType::f32, {2, 16}});
  const ValueId y = ops::add(b, x, x);
  const ValueId whole = b.op1(ops::kJoinSequence, Attrs::of(ops::JoinSequenceAttrs{8, 3}), {y});
  const ValueId w = ops::add(b, x, x);
  const ValueId part = b.op1(ops::kCutSequence, Attrs::of(ops::CutSequenceAttrs{{2}}), {whole});
  const Program program = b.finish({ops::add(b, part, w)});
  Schedule s{.strategy = "join", .micro_batches = {{program.capacity}}};
  for (int op = 0; op < 5; ++op) s.launches.push_back({.op = op});
  s.memory = plan_memory({{program}, {s}});
  EXPECT_NO_THROW(verify({{program}, {s}}));
  EXPECT_EQ(s.memory.offset(y, 0), s.memory.offset(whole, 0));
  EXPECT_EQ(s.memory.offset(y, 0), s.memory.offset(part, 0));
  EXPECT_EQ(s.memory.arena_bytes, 128 + 192 + 128 + 128) << "x, the joined rows, w, the sum";
  Schedule apart = s;
  apart.memory.value_offset[static_cast<size_t>(whole)] += 64;
  expect_refused(
      [&] {
        verify({{program}, {apart}});
      },
      {fmt::format("memory: %{} does not lie where %{} does", whole, y)});
  Schedule shared = s;  // w is written before the whole is read
  shared.memory.value_offset[static_cast<size_t>(w)] = s.memory.offset(whole, 0);
  expect_refused([&] { verify({{program}, {shared}}); }, {"memory: bytes", "are shared with"});
}

// y = x + x, read on two streams; then w, by the stream that need not wait for the other one.
TEST(VerifierMemory, EveryStreamIsDoneWithAPlaceBeforeItIsUsedAgain) {
  Builder b("fork", {1, 1, 1});
  const ValueId x = b.input("x", {DType::f32, {1, 16}});
  const ValueId y = ops::add(b, x, x);
  const ValueId here = ops::add(b, y, y), there = ops::add(b, y, y);
  const ValueId w = ops::add(b, here, here);
  const Program program = b.finish({ops::add(b, w, w), there});
  const auto check = [&](const Schedule& schedule) { verify({{program}, {schedule}}); };
  Schedule s{.strategy = "fork", .micro_batches = {{program.capacity}}};
  s.launches = {{.op = 0},
                {.op = 2, .stream = Stream::side, .waits = {{0}}},
                {.op = 1},
                {.op = 3},
                {.op = 4}};
  s.memory = {.micro_batches = 1,
              .value_offset = {0, 64, 128, 192, 256, 320},
              .merged = std::vector<bool>(6, true),
              .workspace_offset = std::vector<int64_t>(5, -1),
              .arena_bytes = 384};
  EXPECT_NO_THROW(check(s));
  const auto place = [&](ValueId id, ValueId at) {
    Schedule damaged = s;
    damaged.memory.value_offset[static_cast<size_t>(id)] = at * 64;
    return damaged;
  };
  // The side stream may still read y when w is written.
  Schedule late = place(w, y);
  expect_refused([&] { check(late); }, {"add", "memory: bytes [64, 128)"});
  late.launches[3].waits = {{1}};
  EXPECT_NO_THROW(check(late));
  // On the side stream an earlier write meets values of a stream that need not have begun.
  Schedule early = place(there, w);
  expect_refused([&] { check(early); }, {"add", "memory: bytes ["});
  // An output stays to the end of the step, also where nothing reads it any more.
  Schedule lost = place(program.outputs[0], there);
  lost.launches[4].waits = {{1}};
  expect_refused([&] { check(lost); }, {"add", "memory: bytes ["});
  // And an input is there from its beginning, for the host reads and writes it outside.
  Schedule input = place(w, x);
  expect_refused([&] { check(input); }, {"memory: bytes [0, 64)"});
}

TEST_P(VerifierMicroBatches, MemoryOfAMergedLaunchIsMerged) {
  if (M() == 1) GTEST_SKIP() << "nothing to merge";
  for (bool input : {true, false}) {
    Planned plan = planned(merged_whole({{"gated_linear"}}), {.ranks = P(), .micro_batches = M()});
    const int i = plan.find("gated_linear", last());
    on_all(plan, [&](Schedule& s) {
      const Op& op = s.op(plan.programs[0], at(s, i));
      s.memory.merged[static_cast<size_t>((input ? op.inputs : op.outputs)[0])] = false;
    });
    expect_refused([&] { plan.verify(); }, {"micro-batch", "memory: a merged launch uses %"});
  }
}

TEST_P(VerifierRules, MemoryOfAMergedValueHasRowsForAll) {
  Planned plan = good();
  on_all(plan, [&](Schedule& s) { s.micro_batches[0].capacity.row += 1; });
  expect_refused([&] { plan.verify(); },
                 {"gather_rows", "micro-batch 0", fmt::format("rows for {} of all", 4 * M() + 1)});
}

TEST_P(VerifierRanksAndMicroBatches, MergedBatchesDoNotDivideTokens) {
  if (P() == 1 || M() == 1) GTEST_SKIP() << "no parts of tokens, or nothing to merge";
  expect_refused(
      [&] {
        planned(merged_whole({{"reduce_scatter"}}),
                {.ranks = P(), .micro_batches = M(), .sharded = true});
      },
      {"micro-batch 0", "merged batches", "divides tokens over ranks"});
  EXPECT_NO_THROW(planned(merged_whole({{"all_reduce"}}),
                          {.ranks = P(), .micro_batches = M(), .sharded = false}));
}

}  // namespace
}  // namespace braid::testing_schedule
