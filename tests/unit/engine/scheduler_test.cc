// The order of steps over many requests, on a simulated clock and a simulated KV cache.
#include "braid/engine/requests/scheduler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>

#include "braid/base/error.h"
#include "braid/base/math.h"

namespace braid {
namespace {

using testing::HasSubstr;

constexpr int64_t kPage = 4;

SchedulerConfig small() {
  return {.pages = 64,
          .page_size = kPage,
          .max_context = 128,
          .max_running = 8,
          .max_step_tokens = 32,
          .max_waiting = 1000};
}

// A next token that depends on all tokens before it, as a model's does.
int32_t next_token(std::span<const int32_t> ids) {
  uint32_t h = 7;
  for (int32_t id : ids) h = h * 31 + static_cast<uint32_t>(id) + 1;
  return static_cast<int32_t>(h >> 8 & 0x3);
}

// Computes steps: keeps for each slot of the KV cache the tokens up to its position, and checks
// that whatever a row reads is there.
class Machine {
 public:
  explicit Machine(const SchedulerConfig& config)
      : config_(config),
        scheduler(config),
        slots_(static_cast<size_t>(config.pages * config.page_size)) {}

  RequestId submit(std::vector<int32_t> ids, int64_t max_tokens, std::string key = "",
                   std::string salt = "", bool score = false) {
    const RequestId id = ++last_;
    scheduler.submit({.id = id,
                      .ids = std::move(ids),
                      .max_tokens = max_tokens,
                      .key = std::move(key),
                      .salt = std::move(salt),
                      .score_prompt = score,
                      .arrival = now});
    return id;
  }

  Step step() {
    Step step = scheduler.next(now);
    std::vector<int32_t> tokens;
    std::set<int32_t> written;
    int64_t total = 0, decodes = 0;
    for (const StepRow& row : step.rows) {
      const Sequence& sequence = scheduler.sequence(row.id);
      const std::span<const int32_t> pages = scheduler.pages_of(row.id);
      const std::span<const int32_t> ids = sequence.ids;
      EXPECT_LT(row.begin, row.end);
      EXPECT_LE(row.end, std::ssize(ids));
      EXPECT_LE(ceil_div(row.end, kPage), std::ssize(pages));
      for (int64_t i = 0; i < row.end; ++i) {
        const int32_t slot =
            pages[static_cast<size_t>(i / kPage)] * kPage + static_cast<int32_t>(i % kPage);
        const uint64_t prefix = digest(sequence.salt, ids.first(static_cast<size_t>(i + 1)));
        if (i >= row.begin) {
          EXPECT_TRUE(written.insert(slot).second) << "two rows write slot " << slot;
          slots_[static_cast<size_t>(slot)] = prefix;
        }
        EXPECT_EQ(slots_[static_cast<size_t>(slot)], prefix)
            << "request " << row.id << " reads token " << i << " of another sequence";
      }
      EXPECT_TRUE(row.end == std::ssize(ids) || row.end % kPage == 0) << "a chunk ends in a page";
      EXPECT_EQ(row.sample, row.end == std::ssize(ids));
      if (row.sample) tokens.push_back(next_token(ids));
      total += row.end - row.begin;
      decodes += row.end - row.begin == 1 && row.begin + 1 == std::ssize(ids);
    }
    EXPECT_EQ(total, step.tokens);
    EXPECT_LE(total, std::max(config_.max_step_tokens, decodes + kPage));
    EXPECT_LE(std::ssize(step.rows), config_.max_running);
    if (config_.prompts_alone) {
      EXPECT_TRUE(step.rows.size() <= 1 || decodes == std::ssize(step.rows));
    }
    scheduler.step_done(step, tokens);
    scheduler.check();
    now += 0.001 * static_cast<double>(1 + step.tokens);
    ++steps;
    return step;
  }

  std::vector<int32_t> answer(RequestId id, size_t prompt) const {
    const std::vector<int32_t>& ids = scheduler.sequence(id).ids;
    return {ids.begin() + static_cast<ptrdiff_t>(prompt), ids.end()};
  }

  const SchedulerConfig config_;
  Scheduler scheduler;
  double now = 0;
  int64_t steps = 0;

 private:
  static uint64_t digest(const std::string& salt, std::span<const int32_t> ids) {
    uint64_t h = std::hash<std::string>()(salt);
    for (int32_t id : ids) h = (h ^ static_cast<uint32_t>(id + 1)) * 0x100000001b3u;
    return h;
  }

  std::vector<uint64_t> slots_;  // what the key of each slot stands for
  RequestId last_ = 0;
};

std::vector<int32_t> alone(std::vector<int32_t> ids, int64_t max_tokens) {
  const size_t prompt = ids.size();
  for (int64_t i = 0; i < max_tokens; ++i) ids.push_back(next_token(ids));
  return {ids.begin() + static_cast<ptrdiff_t>(prompt), ids.end()};
}

struct Expected {
  std::vector<int32_t> prompt;
  int64_t max_tokens = 0;
};

// Random arrivals, lengths, keys, salts and cancels until all are done; returns the preemptions.
int64_t random_run(uint32_t seed, SchedulerConfig config, int requests) {
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  const auto pick = [&](int64_t from, int64_t to) {
    return std::uniform_int_distribution<int64_t>(from, to)(random);
  };
  Machine machine(config);
  std::map<RequestId, Expected> open;
  int submitted = 0;
  const int64_t room = std::min(config.max_context, config.pages * config.page_size);
  while (submitted < requests || !open.empty()) {
    while (submitted < requests && pick(0, 2) == 0) {
      Expected expected;
      const auto length = pick(0, 9) == 0 ? pick(1, room - 1) : pick(1, room / 4);
      // Few different tokens: many prompts begin alike.
      const auto same = pick(0, length);
      for (int64_t i = 0; i < length; ++i) {
        expected.prompt.push_back(static_cast<int32_t>(i < same ? i % 3 : pick(0, 2)));
      }
      expected.max_tokens = std::min(pick(1, 24), room - length);
      const RequestId id = machine.submit(expected.prompt, expected.max_tokens,
                                          std::string(1, static_cast<char>('a' + pick(0, 2))),
                                          pick(0, 4) == 0 ? "salt" : "", pick(0, 7) == 0);
      open[id] = std::move(expected);
      ++submitted;
    }
    const Step step = machine.step();
    EXPECT_TRUE(open.empty() || !step.empty()) << "requests wait and nothing is computed";
    if (testing::Test::HasFailure()) return 0;
    for (auto it = open.begin(); it != open.end();) {
      const Expected& e = it->second;
      const auto answer = machine.answer(it->first, e.prompt.size());
      const bool done = std::ssize(answer) == e.max_tokens;
      if (done) {
        EXPECT_EQ(answer, alone(e.prompt, e.max_tokens));
      }
      if (done || pick(0, 99) == 0) {
        EXPECT_TRUE(machine.scheduler.end(it->first));
        it = open.erase(it);
      } else {
        ++it;
      }
    }
    EXPECT_LT(machine.steps, 1000 * requests) << "no end";
    if (machine.steps >= 1000 * requests) return 0;
  }
  const Scheduler::Counts counts = machine.scheduler.counts();
  EXPECT_EQ(counts.running + counts.waiting, 0);
  EXPECT_EQ(counts.pages.held, 0);
  EXPECT_EQ(counts.pages.free + counts.pages.cached, config.pages);
  return counts.preemptions;
}

TEST(Scheduler, EveryAnswerIsThatOfTheRequestAlone) {
  for (uint32_t seed = 0; seed < 60; ++seed) random_run(seed, small(), 60);
}

TEST(Scheduler, ShortOfPagesRequestsArePreemptedAndGoOn) {
  SchedulerConfig config = small();
  config.pages = 12;
  int64_t preemptions = 0;
  for (uint32_t seed = 100; seed < 160; ++seed) preemptions += random_run(seed, config, 40);
  EXPECT_GT(preemptions, 20);
}

TEST(Scheduler, WithoutThePrefixCacheTheAnswersAreTheSame) {
  SchedulerConfig config = small();
  config.prefix_cache = false;
  for (uint32_t seed = 200; seed < 220; ++seed) random_run(seed, config, 40);
}

TEST(Scheduler, WithPromptsAloneTheAnswersAreTheSame) {
  SchedulerConfig config = small();
  config.prompts_alone = true;
  for (uint32_t seed = 300; seed < 315; ++seed) random_run(seed, config, 150);
  config.pages = 20;
  int64_t preemptions = 0;
  for (uint32_t seed = 320; seed < 335; ++seed) preemptions += random_run(seed, config, 100);
  EXPECT_GT(preemptions, 0);
}

TEST(Scheduler, PromptsAloneAndAnswersTakeTurns) {
  SchedulerConfig config = small();
  config.prompts_alone = true;
  Machine machine(config);
  machine.submit({1}, 20);
  machine.step();
  machine.submit(std::vector<int32_t>(100, 2), 4);
  for (int i = 0; i < 6; ++i) {
    const Step step = machine.step();
    ASSERT_EQ(step.rows.size(), 1u);
    EXPECT_EQ(step.rows[0].id, i % 2 == 0 ? 1u : 2u) << i;
  }
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
