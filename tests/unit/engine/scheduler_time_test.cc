// How long the order of steps lets requests wait.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "unit/engine/scheduler_machine.h"

namespace braid {
namespace {

using namespace scheduler_test;

TEST(Scheduler, APageLongPromptBehindALongOneStartsWithinThreeSteps) {
  SchedulerConfig config = small();
  config.max_context = 100000;
  config.pages = 40000;
  Machine machine(config);
  machine.submit(std::vector<int32_t>(90000, 1), 4);
  machine.step();
  const RequestId quick = machine.submit(std::vector<int32_t>(kPage, 2), 4);
  int steps = 0;
  while (machine.answer(quick, kPage).empty()) {
    machine.step();
    ASSERT_LE(++steps, 3);
  }
}

TEST(Scheduler, ALongPromptKeepsItsShareAmongShortOnes) {
  SchedulerConfig config = small();
  config.max_context = 10000;
  config.pages = 4000;
  Machine machine(config);
  const RequestId long_one = machine.submit(std::vector<int32_t>(1600, 1), 1);
  int steps = 0;
  int32_t n = 0;
  while (machine.answer(long_one, 1600).empty()) {
    // Short prompts without end.
    while (machine.scheduler.counts().running + machine.scheduler.counts().waiting < 20) {
      machine.submit({2, ++n, 3, 4, 5, 6, 7, 8}, 1);
    }
    const Step step = machine.step();
    for (const StepRow& row : step.rows) {
      if (row.sample && row.id != long_one) machine.scheduler.end(row.id);
    }
    // Half of 32 tokens a step, less what decodes take.
    ASSERT_LE(++steps, 1600 / 12);
  }
}

TEST(Scheduler, StepsKeepToTheirTime) {
  SchedulerConfig config = small();
  config.max_step_tokens = 4096;
  config.max_context = 4000;
  config.pages = 2000;
  config.max_step_ms = 10;
  Machine machine(config);
  const StepCost cost{.step_ms = 1, .token_ms = 0.1, .key_ms = 0.0001};
  machine.scheduler.set_cost(cost);
  const RequestId id = machine.submit(std::vector<int32_t>(2000, 1), 1);
  while (machine.answer(id, 2000).empty()) {
    const Step step = machine.step();
    EXPECT_LE(cost.of(step.tokens, step.attended), 10);
    EXPECT_GE(step.tokens, kPage);
  }
  // A budget below any chunk: prompts go on all the same, a page now and then.
  machine.scheduler.set_cost({.step_ms = 100});
  const RequestId next = machine.submit(std::vector<int32_t>(40, 2), 1);
  for (int i = 0; i < 80; ++i) machine.step();
  EXPECT_EQ(machine.answer(next, 40).size(), 1u);
}

// Where the time of a step has no room for any chunk, prompts take turns all the same.
TEST(Scheduler, AShortPromptBehindALongOneStartsThoughNoChunkFitsAStep) {
  SchedulerConfig config = small();
  config.max_context = 4000;
  config.pages = 2000;
  config.max_step_ms = 10;
  for (const int64_t streams : {0, 3}) {
    Machine machine(config);
    machine.scheduler.set_cost({.step_ms = 100});
    for (int64_t i = 0; i < streams; ++i) {
      const RequestId id = machine.submit({static_cast<int32_t>(i)}, 2000);
      while (machine.answer(id, 1).empty()) machine.step();
    }
    const RequestId long_one = machine.submit(std::vector<int32_t>(2000, 1), 1);
    while (machine.scheduler.pages_of(long_one).size() < 5) machine.step();
    const RequestId quick = machine.submit(std::vector<int32_t>(kPage, 2), 1);
    const size_t before = machine.scheduler.pages_of(long_one).size();
    int steps = 0;
    while (machine.answer(quick, kPage).empty()) {
      machine.step();
      ASSERT_LE(++steps, 8);  // two times a page is forced
    }
    for (int i = 0; i < 40; ++i) machine.step();
    EXPECT_GT(machine.scheduler.pages_of(long_one).size(), before + 4) << "it goes on, too";
  }
}

// Steps that hold a page or less, by tokens or by time: short prompts without end and a long one.
TEST(Scheduler, PromptsTakeTurnsWhereAStepHoldsAPage) {
  const StepCost none, page{.step_ms = 1, .token_ms = 1.5}, more{.step_ms = 100};
  struct Case {
    int64_t tokens;
    StepCost cost;
    int steps;  // for a page
  };
  for (const auto& [tokens, cost, steps_of_page] :
       {Case{2 * kPage, none, 1}, Case{4096, page, 1}, Case{4096, more, 4}}) {
    SchedulerConfig config = small();
    config.max_context = 1000;
    config.pages = 1000;
    config.max_running = 4;
    config.max_step_tokens = tokens;
    config.max_step_ms = 10;
    Machine machine(config);
    machine.scheduler.set_cost(cost);
    const RequestId stream = machine.submit({1}, 900);
    machine.step();
    const RequestId long_one = machine.submit(std::vector<int32_t>(100 * kPage, 1), 1);
    RequestId quick = 0;
    int32_t n = 0;
    int steps = 0, waited = 0;
    while (machine.answer(long_one, 100 * kPage).empty()) {
      if (quick == 0) quick = machine.submit({2, ++n, 3, 4}, 1);
      machine.step();
      ++waited;
      if (!machine.answer(quick, kPage).empty()) {
        machine.scheduler.end(std::exchange(quick, 0));
        waited = 0;
      }
      ASSERT_LE(waited, 3 * steps_of_page) << tokens << " tokens a step, " << cost.step_ms << " ms";
      ASSERT_LE(++steps, 220 * steps_of_page);
    }
    EXPECT_GT(machine.answer(stream, 1).size(), 90u);
  }
}

// On a simulated clock: the tokens' gaps of 16 streams keep to the time of a step while a prompt of
// 32,768 tokens is computed, which takes at most 1.5 times as long as alone; a short prompt behind
// the long one begins within three steps.
TEST(Scheduler, ALongPromptAmongStreamsDelaysNobody) {
  const StepCost cost{.step_ms = 5, .token_ms = 0.02, .key_ms = 2e-6};
  const auto time_of_the_long_one = [&](int streams) {
    SchedulerConfig config{.pages = 2000,
                           .page_size = 64,
                           .max_context = 40000,
                           .max_running = 32,
                           .max_step_tokens = 8192,
                           .max_step_ms = 50};
    Scheduler scheduler(config);
    scheduler.set_cost(cost);
    double now = 0;
    const auto step = [&] {
      const Step step = scheduler.next(now);
      scheduler.step_put(step);
      const auto sampled = std::ranges::count(step.rows, true, &StepRow::sample);
      scheduler.step_done(step, std::vector<int32_t>(static_cast<size_t>(sampled), 1));
      now += cost.of(step.tokens, step.attended);
      return step;
    };
    RequestId id = 0;
    for (int i = 0; i < streams; ++i) {
      scheduler.submit({.id = ++id, .ids = std::vector<int32_t>(64, i), .max_tokens = 4000});
      step();
    }
    const RequestId long_one = ++id, quick = ++id;
    scheduler.submit({.id = long_one, .ids = std::vector<int32_t>(32768, 100), .max_tokens = 1});
    const double begin = now;
    std::map<RequestId, double> last;
    bool began = false;
    for (int steps = 1; std::ssize(scheduler.sequence(long_one).ids) == 32768; ++steps) {
      if (steps == 4) {
        scheduler.submit({.id = quick, .ids = std::vector<int32_t>(64, 200), .max_tokens = 1});
      }
      for (const StepRow& row : step().rows) {
        began |= row.id == quick;
        if (row.id > static_cast<RequestId>(streams)) continue;
        if (last.contains(row.id)) {
          EXPECT_LE(now - last[row.id], 1.25 * config.max_step_ms);
        }
        last[row.id] = now;
      }
      if (steps == 6) {
        EXPECT_TRUE(began);
      }
    }
    EXPECT_EQ(std::ssize(last), streams);
    return now - begin;
  };
  EXPECT_LE(time_of_the_long_one(16), 1.5 * time_of_the_long_one(0));
}

TEST(Scheduler, PromptsAloneAndAnswersTakeTurns) {
  SchedulerConfig config = small();
  config.prompts_alone = true;
  for (const size_t depth : {1, 2}) {
    Machine machine(config, depth);
    machine.submit({1}, 20);
    machine.step();
    machine.submit(std::vector<int32_t>(100, 2), 4);
    for (int i = 0; i < 6; ++i) {
      const Step step = machine.step();
      ASSERT_EQ(step.rows.size(), 1u);
      EXPECT_EQ(step.rows[0].id, i % 2 == 0 ? 1u : 2u) << i;
    }
  }
}

// A long prompt has its steps alone and no group; short prompts begin beside the decodes.
TEST(Scheduler, OwnPromptsShareStepsAndDividedOnesDoNot) {
  SchedulerConfig config = small();
  config.prompts_alone = true;
  config.groups = 2;
  config.own_prompt = 8;
  Machine machine(config);
  const RequestId first = machine.submit({1}, 20);
  machine.step();
  const RequestId divided = machine.submit(std::vector<int32_t>(100, 2), 4);
  const RequestId a = machine.submit({3, 3, 3}, 4), b = machine.submit({4, 4}, 4);
  Step step = machine.step();
  ASSERT_EQ(step.rows.size(), 1u);
  EXPECT_EQ(step.rows[0].id, divided);
  EXPECT_EQ(machine.scheduler.group_of(divided), -1);
  step = machine.step();
  std::vector<RequestId> ids;
  for (const StepRow& row : step.rows) ids.push_back(row.id);
  EXPECT_EQ(ids, (std::vector<RequestId>{first, a, b}));
  EXPECT_EQ(machine.scheduler.group_of(first), 0);
  EXPECT_EQ(machine.scheduler.group_of(a), 1) << "the group with the fewest tokens";
  EXPECT_GE(machine.scheduler.group_of(b), 0);
  step = machine.step();
  ASSERT_EQ(step.rows.size(), 1u);
  EXPECT_EQ(step.rows[0].id, divided) << "in turns";
}

TEST(Scheduler, WaitingIsBoundedByTime) {
  SchedulerConfig config = small();
  config.max_running = 1;
  config.queue_timeout_s = 1;
  Machine machine(config);
  const RequestId first = machine.submit({1, 2, 3}, 100);
  machine.step();
  const RequestId second = machine.submit({4, 5}, 1);
  machine.now += 0.5;
  EXPECT_TRUE(machine.step().expired.empty());
  machine.now += 0.6;
  EXPECT_EQ(machine.step().expired, std::vector<RequestId>{second});
  EXPECT_FALSE(machine.scheduler.contains(second));
  machine.now += 5;
  EXPECT_TRUE(machine.step().expired.empty()) << "what has begun does not expire";
  EXPECT_TRUE(machine.scheduler.contains(first));
}

}  // namespace
}  // namespace braid
