#include "braid/schedule/memory_plan.h"

#include <gtest/gtest.h>

#include <random>

#include "braid/ops/norm.h"
#include "braid/program/builder.h"

namespace braid {
namespace {

struct Life {
  Range bytes;
  int first, last;
};

// Recomputes lifetimes from the Program alone, and checks that no two that meet share a byte.
void expect_disjoint(const Program& program, const std::vector<Launch>& launches,
                     const MemoryPlan& plan) {
  const int end = static_cast<int>(launches.size()) - 1;
  std::vector<Life> lives;
  for (size_t id = 0; id < program.values.size(); ++id) {
    if (plan.value_offset[id] < 0) continue;
    const Value& value = program.values[id];
    Life life{
        {plan.value_offset[id], plan.value_offset[id] + value.type.shape.elems() * 4}, end, 0};
    const auto use = [&](int i) {
      life.first = std::min(life.first, i);
      life.last = std::max(life.last, i);
    };
    for (int i = 0; i <= end; ++i) {
      const Op& op = program.ops[static_cast<size_t>(launches[static_cast<size_t>(i)].op)];
      for (ValueId v : op.inputs) {
        if (v == static_cast<ValueId>(id)) use(i);
      }
      for (ValueId v : op.outputs) {
        if (v == static_cast<ValueId>(id)) use(i);
      }
    }
    if (value.kind == ValueKind::input) use(0), use(end);
    for (ValueId v : program.outputs) {
      if (v == static_cast<ValueId>(id)) use(end);
    }
    lives.push_back(life);
  }
  for (int i = 0; i <= end; ++i) {
    const int64_t offset = plan.workspace_offset[static_cast<size_t>(i)];
    const int64_t bytes = launches[static_cast<size_t>(i)].kernel.workspace_bytes;
    ASSERT_EQ(offset >= 0, bytes > 0);
    if (bytes > 0) lives.push_back({{offset, offset + bytes}, i, i});
  }
  for (size_t a = 0; a < lives.size(); ++a) {
    EXPECT_LE(lives[a].bytes.end, plan.arena_bytes);
    EXPECT_EQ(lives[a].bytes.begin % MemoryPlan::kAlignment, 0);
    for (size_t b = a + 1; b < lives.size(); ++b) {
      const bool meet = lives[a].first <= lives[b].last && lives[b].first <= lives[a].last;
      const bool share =
          lives[a].bytes.begin < lives[b].bytes.end && lives[b].bytes.begin < lives[a].bytes.end;
      EXPECT_FALSE(meet && share) << a << " and " << b;
    }
  }
}

TEST(MemoryPlan, RandomProgramsNeverOverlap) {
  const auto seed = static_cast<uint64_t>(std::random_device{}());
  SCOPED_TRACE(fmt::format("seed {}", seed));
  std::mt19937_64 rng(seed);
  for (int round = 0; round < 50; ++round) {
    Builder b("random", {1, 1, 1});
    std::vector<std::vector<ValueId>> by_width(4);
    for (size_t w = 0; w < by_width.size(); ++w) {
      by_width[w] = {
          b.input(fmt::format("x{}", w), {DType::f32, {1, 10 + 37 * static_cast<int64_t>(w)}})};
    }
    const int ops = 1 + static_cast<int>(rng() % 40);
    ValueId last = 0;
    for (int i = 0; i < ops; ++i) {
      auto& values = by_width[rng() % by_width.size()];
      last = ops::add(b, values[rng() % values.size()], values[rng() % values.size()]);
      values.push_back(last);
    }
    const Program program = b.finish({last});
    Schedule schedule{.micro_batches = {{program.capacity}}};
    for (int i = 0; i < ops; ++i) {
      schedule.launches.push_back(
          {.op = i, .kernel = {"add", static_cast<int64_t>(rng() % 3) * 1000}});
    }
    const MemoryPlan plan = plan_memory({{program}, {schedule}});
    EXPECT_GE(plan.arena_bytes, plan.live_bytes);
    expect_disjoint(program, schedule.launches, plan);
  }
}

TEST(MemoryPlan, AChainReusesTwoBuffers) {
  Builder b("chain", {1, 1, 1});
  const ValueId x = b.input("x", {DType::f32, {1, 1024}});
  ValueId y = x;
  Schedule schedule{.micro_batches = {{b.capacity()}}};
  for (int i = 0; i < 20; ++i) {
    y = ops::add(b, y, y);
    schedule.launches.push_back({.op = i, .kernel = {"add", 0}});
  }
  const MemoryPlan plan = plan_memory({{b.finish({y})}, {schedule}});
  EXPECT_EQ(plan.arena_bytes, 3 * 4096) << "the input and two that take turns";
  EXPECT_EQ(plan.live_bytes, plan.arena_bytes);
}

// x -> y -> z, for two micro-batches of 3 and 5 of 8 tokens.
struct TwoParts {
  Program program;
  Schedule schedule;
  MemoryPlan memory;

  explicit TwoParts(BatchAxis axis, bool merge_second = false) {
    Builder b("parts", {8, 1, 1});
    ValueId x = b.input("x", {DType::f32, {8, 100}, BatchAxis::token});
    if (axis == BatchAxis::none) x = b.input("t", {DType::f32, {8, 100}});
    const ValueId y = ops::add(b, x, x);
    const ValueId z = ops::add(b, y, y);
    program = b.finish({ops::add(b, z, z)});
    schedule.micro_batches = {{{3, 1, 1}}, {{5, 1, 1}}};
    for (int op = 0; op < 3; ++op) {
      for (int mb = 0; mb < 2; ++mb) {
        if (op == 1 && merge_second) {
          if (mb == 0) schedule.launches.push_back({.op = 1, .num_micro_batches = 2});
          continue;
        }
        schedule.launches.push_back({.op = op, .micro_batch = mb});
      }
    }
    memory = plan_memory({{program}, {schedule}});
  }
  bool merged(int op) const {
    return memory.merged[static_cast<size_t>(program.ops[static_cast<size_t>(op)].outputs[0])];
  }
  int64_t offset(int op, int mb) const {
    return memory.offset(program.ops[static_cast<size_t>(op)].outputs[0], mb);
  }
};

TEST(MemoryPlan, WhatMeetsIsOneBufferAndTheRestIsApart) {
  const TwoParts apart(BatchAxis::token);
  EXPECT_FALSE(apart.merged(0) || apart.merged(1));
  EXPECT_TRUE(apart.merged(2)) << "an output";
  EXPECT_NE(apart.offset(0, 0), apart.offset(0, 1));
  EXPECT_EQ(apart.offset(2, 0), apart.offset(2, 1));
  const TwoParts meets(BatchAxis::token, true);
  EXPECT_TRUE(meets.merged(0) && meets.merged(1));
  EXPECT_EQ(meets.offset(0, 0), meets.offset(0, 1));
  // Parts of 3 and 5 rows take less than two of 8.
  EXPECT_LT(apart.memory.arena_bytes, 2 * 3200 + 2 * 3200);
}

TEST(MemoryPlan, WhatHasNoBatchAxisIsMadeByEachMicroBatchInAPlaceOfItsOwn) {
  const TwoParts plan(BatchAxis::none);
  EXPECT_FALSE(plan.merged(0));
  EXPECT_GE(std::abs(plan.offset(0, 0) - plan.offset(0, 1)), 3200);
}

TEST(MemoryPlan, ScratchOfStreamsThatRunBesideEachOtherIsApart) {
  Builder b("streams", {1, 1, 1});
  const ValueId x = b.input("x", {DType::f32, {1, 16}});
  const ValueId y = ops::add(b, x, x), z = ops::add(b, x, x);
  const Program program = b.finish({ops::add(b, y, z)});
  for (bool ordered : {false, true}) {
    Schedule schedule{.micro_batches = {{program.capacity}}};
    schedule.launches = {{.op = 0, .kernel = {"add", 4096}},
                         {.op = 1, .stream = Stream::side, .kernel = {"add", 4096}},
                         {.op = 2, .waits = {{1}}, .kernel = {"add", 4096}}};
    if (ordered) schedule.launches[1].waits = {{0}};
    const MemoryPlan plan = plan_memory({{program}, {schedule}});
    EXPECT_EQ(plan.workspace_offset[0] == plan.workspace_offset[1], ordered);
    EXPECT_EQ(plan.workspace_offset[2], plan.workspace_offset[0]);
    EXPECT_LE(plan.live_bytes, plan.arena_bytes);
  }
}

}  // namespace
}  // namespace braid
