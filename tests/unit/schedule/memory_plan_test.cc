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
    std::vector<Launch> launches;
    for (int i = 0; i < ops; ++i) {
      launches.push_back({i, Stream::compute, {}, {"add", static_cast<int64_t>(rng() % 3) * 1000}});
    }
    const MemoryPlan plan = plan_memory(program, launches);
    EXPECT_GE(plan.arena_bytes, plan.live_bytes);
    expect_disjoint(program, launches, plan);
  }
}

TEST(MemoryPlan, AChainReusesTwoBuffers) {
  Builder b("chain", {1, 1, 1});
  const ValueId x = b.input("x", {DType::f32, {1, 1024}});
  ValueId y = x;
  std::vector<Launch> launches;
  for (int i = 0; i < 20; ++i) {
    y = ops::add(b, y, y);
    launches.push_back({i, Stream::compute, {}, {"add", 0}});
  }
  const MemoryPlan plan = plan_memory(b.finish({y}), launches);
  EXPECT_EQ(plan.arena_bytes, 3 * 4096) << "the input and two that take turns";
  EXPECT_EQ(plan.live_bytes, plan.arena_bytes);
}

}  // namespace
}  // namespace braid
