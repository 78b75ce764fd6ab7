// The order of steps over many requests, on a simulated clock and a simulated KV cache.
#include "braid/engine/requests/scheduler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "braid/base/error.h"
#include "unit/engine/scheduler_machine.h"

namespace braid {
namespace {

using namespace scheduler_test;
using testing::HasSubstr;

TEST(Scheduler, EveryAnswerIsThatOfTheRequestAlone) {
  for (uint32_t seed = 0; seed < 60; ++seed) random_run(seed, small(), 60);
}

// Prompts that grow from each other: a tree of prefixes.
TEST(Scheduler, RandomPrefixTreesAnswerAsWithoutACache) {
  int64_t hits = 0, preemptions = 0, evictions = 0;
  for (uint32_t seed = 0; seed < 20000 && !testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937 random(seed);
    SchedulerConfig config = small();
    config.pages = 6 + random() % 12;
    config.max_context = 24;
    config.max_running = 3;
    config.max_step_tokens = 8;
    Machine machine(config, 1 + random() % 2);
    std::vector<std::vector<int32_t>> prompts;
    std::map<RequestId, size_t> open;
    while (prompts.size() < 6 || !open.empty()) {
      if (prompts.size() < 6 && random() % 3 == 0) {
        std::vector<int32_t> prompt;
        if (!prompts.empty() && random() % 4 != 0) {
          prompt = prompts[random() % prompts.size()];
          prompt.resize(random() % std::min<size_t>(prompt.size() + 1, 20));
        }
        do prompt.push_back(static_cast<int32_t>(random() % 2));
        while (prompt.size() < 20 && random() % 6 != 0);
        prompts.push_back(prompt);
        open[machine.submit(prompt, 3, "", random() % 5 == 0 ? "salt" : "")] = prompts.size() - 1;
      }
      machine.step();
      ASSERT_LT(machine.steps, 1000);
      std::erase_if(open, [&](const auto& request) {
        const std::vector<int32_t>& prompt = prompts[request.second];
        const auto answer = machine.answer(request.first, prompt.size());
        if (answer.size() < 3) return false;
        EXPECT_EQ(answer, alone(prompt, 3));
        return machine.scheduler.end(request.first);
      });
    }
    machine.step();
    const Scheduler::Counts counts = machine.scheduler.counts();
    ASSERT_EQ(counts.pages.held, 0);
    ASSERT_EQ(counts.pages.free + counts.pages.cached, config.pages);
    hits += counts.prefix_hits;
    preemptions += counts.preemptions;
    evictions += counts.evictions;
  }
  EXPECT_GT(hits, 20000);
  EXPECT_GT(preemptions, 100);
  EXPECT_GT(evictions, 1000);
}

TEST(Scheduler, ShortOfPagesRequestsArePreemptedAndGoOn) {
  SchedulerConfig config = small();
  config.pages = 12;
  int64_t preemptions = 0;
  for (uint32_t seed = 100; seed < 160; ++seed) preemptions += random_run(seed, config, 40);
  EXPECT_GT(preemptions, 20);
}

TEST(Scheduler, AStepPutInBehindAnotherChangesNoAnswer) {
  int64_t preemptions = 0;
  for (const int64_t pages : {64, 12}) {
    for (const bool cache : {true, false}) {
      SchedulerConfig config = small();
      config.pages = pages;
      config.prefix_cache = cache;
      for (uint32_t seed = 300; seed < 330; ++seed) preemptions += random_run(seed, config, 40, 2);
    }
  }
  EXPECT_GT(preemptions, 20);
}

TEST(Scheduler, AtMostOneTokenBehindAStopIsDropped) {
  Machine machine(small(), 2);
  const RequestId id = machine.submit({1, 2, 3}, 20), other = machine.submit({3, 2, 1}, 20);
  while (machine.answer(id, 3).size() < 4) machine.step();
  EXPECT_EQ(machine.answer(id, 3).size(), 4u);  // the fourth is the stop
  machine.scheduler.end(id);
  while (machine.answer(other, 3).size() < 20) machine.step();
  machine.step();
  EXPECT_EQ(machine.dropped, 1);
  EXPECT_EQ(machine.answer(other, 3), alone({3, 2, 1}, 20));
  EXPECT_EQ(machine.scheduler.counts().pages.held, 6);  // 22 tokens of the other
}

TEST(Scheduler, APromptWithoutAPageWaitsForAnAnswerThatEndsWithTheStepUnderWay) {
  SchedulerConfig config = small();
  config.pages = 8;
  config.max_running = 2;
  config.max_step_tokens = 6;
  Machine machine(config, 2);
  for (int i = 0; i < 100; ++i) {  // from now on answers are expected to be short
    const RequestId id = machine.submit({1}, 1);
    while (machine.answer(id, 1).empty()) machine.step();
    machine.scheduler.end(id);
  }
  const RequestId answer = machine.submit(std::vector<int32_t>(8, 2), 6);
  machine.step();
  const RequestId prompt = machine.submit(std::vector<int32_t>(19, 3), 1);
  bool lacked = false;  // the prompt's last page, since the answer has it
  while (machine.answer(prompt, 19).empty()) {
    ASSERT_LT(machine.steps, 1000);
    lacked |= machine.step().empty();
    if (machine.scheduler.contains(answer) && machine.answer(answer, 8).size() == 6) {
      machine.scheduler.end(answer);
      EXPECT_TRUE(lacked);
    }
  }
  EXPECT_EQ(machine.scheduler.counts().preemptions, 0);
}

TEST(Scheduler, ChoicesOfOnePromptComputeItOnceAlsoWhileItsStepsAreUnderWay) {
  Machine machine(small(), 2);
  std::vector<RequestId> all;
  for (int i = 0; i < 4; ++i) all.push_back(machine.submit(std::vector<int32_t>(60, 1), 2));
  int64_t tokens = 0;
  for (int i = 0; i < 20; ++i) tokens += machine.step().tokens;
  for (const RequestId id : all) EXPECT_EQ(machine.answer(id, 60).size(), 2u);
  // 56 tokens in full pages once, the four behind them by each, and one decode each.
  EXPECT_EQ(tokens, 56 + 4 * 4 + 4);
}

TEST(Scheduler, AStepHasNoMoreRowsOfLogitsThanItMay) {
  SchedulerConfig config = small();
  config.max_scored = 8;
  config.max_rows = 12;
  Machine machine(config);
  std::vector<RequestId> all;
  for (int i = 0; i < 4; ++i) {
    all.push_back(machine.submit(std::vector<int32_t>(20, 1), 2, "", "", true));
  }
  for (int i = 0; i < 30; ++i) {
    int64_t rows = 0;
    for (const StepRow& row : machine.step().rows) rows += row.scored;
    EXPECT_LE(rows, 12);
  }
  for (const RequestId id : all) EXPECT_EQ(machine.answer(id, 20).size(), 2u);
}

TEST(Scheduler, WithoutThePrefixCacheTheAnswersAreTheSame) {
  SchedulerConfig config = small();
  config.prefix_cache = false;
  for (uint32_t seed = 200; seed < 220; ++seed) random_run(seed, config, 40);
}

TEST(Scheduler, WithPromptsAloneTheAnswersAreTheSame) {
  SchedulerConfig config = small();
  config.prompts_alone = true;
  for (const size_t depth : {1, 2, 3}) {
    config.pages = 64;
    for (uint32_t seed = 300; seed < 315; ++seed) random_run(seed, config, 150, depth);
    config.pages = 20;
    int64_t preemptions = 0;
    for (uint32_t seed = 320; seed < 335; ++seed) {
      preemptions += random_run(seed, config, 100, depth);
    }
    EXPECT_GT(preemptions, 0) << depth;
  }
}

TEST(Scheduler, InGroupsOfRanksTheAnswersAreTheSame) {
  SchedulerConfig config = small();
  config.groups = 3;
  for (uint32_t seed = 200; seed < 230; ++seed) random_run(seed, config, 40);
  config.pages = 24;
  int64_t preemptions = 0;
  for (uint32_t seed = 230; seed < 240; ++seed) preemptions += random_run(seed, config, 40);
  EXPECT_GT(preemptions, 0);
}

TEST(Scheduler, WithPromptsOfGroupsBesideDividedOnesTheAnswersAreTheSame) {
  SchedulerConfig config = small();
  config.groups = 3;
  config.prompts_alone = true;
  config.own_prompt = 12;
  for (uint32_t seed = 400; seed < 425; ++seed) random_run(seed, config, 60);
  config.pages = 24;
  int64_t preemptions = 0;
  for (uint32_t seed = 430; seed < 440; ++seed) preemptions += random_run(seed, config, 40);
  EXPECT_GT(preemptions, 0);
}

// A sequence goes where its beginning is cached, unless another group has less to do by more.
TEST(Scheduler, SequencesAreDealtToGroupsByWorkAndCachedPages) {
  SchedulerConfig config = small();
  config.groups = 2;
  Machine machine(config);
  const std::vector<int32_t> first(8, 1), second(8, 2);
  const RequestId a = machine.submit(first, 8), b = machine.submit(second, 8);
  machine.step();
  EXPECT_EQ(machine.scheduler.group_of(a), 0);
  EXPECT_EQ(machine.scheduler.group_of(b), 1);
  std::vector<int32_t> like_second = second;
  like_second.insert(like_second.end(), {3, 3, 3});
  const RequestId c = machine.submit(like_second, 8);
  machine.step();
  EXPECT_EQ(machine.scheduler.group_of(c), 1);
  EXPECT_EQ(machine.scheduler.cached_tokens(c), 8);
  const RequestId d = machine.submit(like_second, 8);  // group 1 has two sequences
  machine.step();
  EXPECT_EQ(machine.scheduler.group_of(d), 0);
}

TEST(Scheduler, ASecondTurnFindsTheFirst) {
  Machine machine(small());
  const RequestId first = machine.submit(std::vector<int32_t>(21, 1), 3);
  while (machine.answer(first, 21).size() < 3) machine.step();
  std::vector<int32_t> next = machine.scheduler.sequence(first).ids;  // 24 tokens, 23 computed
  machine.scheduler.end(first);
  next.insert(next.end(), 10, 2);
  const RequestId second = machine.submit(next, 1);
  const Step step = machine.step();
  ASSERT_EQ(step.rows.size(), 1u);
  EXPECT_EQ(step.rows[0].begin, 20);
  EXPECT_EQ(machine.scheduler.cached_tokens(second), 20);
}

TEST(Scheduler, ChoicesOfOnePromptComputeItOnce) {
  Machine machine(small());
  std::vector<RequestId> all;
  for (int i = 0; i < 4; ++i) all.push_back(machine.submit(std::vector<int32_t>(30, 1), 2));
  int64_t tokens = 0;
  for (int i = 0; i < 10; ++i) tokens += machine.step().tokens;
  for (const RequestId id : all) EXPECT_EQ(machine.answer(id, 30).size(), 2u);
  // 28 tokens in full pages once, the two behind them by each, and one decode each.
  EXPECT_EQ(tokens, 28 + 4 * 2 + 4);
}

TEST(Scheduler, KeysShareTheStepsEvenly) {
  SchedulerConfig config = small();
  config.max_running = 4;
  Machine machine(config);
  std::map<std::string, int64_t> tokens;
  std::map<RequestId, std::string> keys;
  int32_t n = 0;
  for (int i = 0; i < 40; ++i)
    keys[machine.submit({1, ++n, 2, 3, 4, 5, 6, 7}, 1, "greedy")] = "greedy";
  for (int i = 0; i < 10; ++i)
    keys[machine.submit({2, ++n, 2, 3, 4, 5, 6, 7}, 1, "modest")] = "modest";
  while (tokens["modest"] < 80) {
    const Step step = machine.step();
    ASSERT_FALSE(step.empty());
    for (const StepRow& row : step.rows) {
      tokens[keys[row.id]] += row.end - row.begin;
      if (row.sample) machine.scheduler.end(row.id);
    }
  }
  EXPECT_LE(tokens["greedy"], tokens["modest"] + 4 * 8 * 2);
}

TEST(Scheduler, TheOldestIsNeverPreempted) {
  SchedulerConfig config = small();
  config.pages = 8;  // 32 tokens
  Machine machine(config);
  // After many short answers, short ones are expected.
  for (int i = 0; i < 100; ++i) {
    const RequestId id = machine.submit({3}, 1);
    machine.step();
    machine.scheduler.end(id);
  }
  const RequestId oldest = machine.submit({1, 1, 1, 1}, 24);
  const RequestId younger = machine.submit({2, 2, 2, 2}, 24);
  while (machine.answer(oldest, 4).size() < 24) machine.step();
  EXPECT_EQ(machine.scheduler.preemptions(oldest), 0);
  EXPECT_GT(machine.scheduler.preemptions(younger), 0);
  machine.scheduler.end(oldest);
  while (machine.answer(younger, 4).size() < 24) machine.step();
  EXPECT_EQ(machine.answer(younger, 4), alone({2, 2, 2, 2}, 24));
}

TEST(Scheduler, ScoredPromptsComputeEveryToken) {
  SchedulerConfig config = small();
  config.max_scored = 8;
  Machine machine(config);
  machine.scheduler.end(machine.submit(std::vector<int32_t>(20, 1), 1));
  for (int round = 0; round < 2; ++round) {
    const RequestId id = machine.submit(std::vector<int32_t>(20, 1), 2, "", "", true);
    int64_t scored = 0;
    while (machine.answer(id, 20).size() < 2) {
      for (const StepRow& row : machine.step().rows) {
        if (row.begin < 20) scored += row.scored;
        EXPECT_LE(row.scored, 8);
      }
    }
    EXPECT_EQ(scored, 20);
    machine.scheduler.end(id);
  }
}

TEST(Scheduler, WhatCanNeverFitIsRefusedWithTheNumberThatDoes) {
  const auto message = [](SchedulerConfig config, size_t length) -> std::string {
    try {
      Machine machine(config);
      machine.submit(std::vector<int32_t>(length, 1), 5);
    } catch (const Error& error) {
      return error.what();
    }
    return "accepted";
  };
  EXPECT_THAT(message(small(), 0), HasSubstr("the prompt is empty"));
  EXPECT_THAT(message(small(), 128), HasSubstr("128 tokens, the context holds 128: at most 127"));
  EXPECT_EQ(message(small(), 127), "accepted");
  SchedulerConfig tight = small();
  tight.pages = 10;
  EXPECT_THAT(message(tight, 40), HasSubstr("the KV cache holds 40: at most 39"));
  SchedulerConfig full = small();
  full.max_waiting = 0;
  EXPECT_THAT(message(full, 4), HasSubstr("0 requests wait already, the queue holds 0"));
  SchedulerConfig narrow = small();
  narrow.max_step_tokens = 11;
  EXPECT_THAT(message(narrow, 4), HasSubstr("a step of 11 tokens at most, wanted at least 12"));
}

}  // namespace
}  // namespace braid
