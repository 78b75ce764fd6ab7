// Approximate and exact requests over one KV cache: which share steps and pages.
#include <gtest/gtest.h>

#include "unit/engine/scheduler_machine.h"

namespace braid {
namespace {

using namespace scheduler_test;

// Keys of the two kinds never meet, and with probe or previous no prompt serves another.
TEST(ApproximatePages, WithApproximatePromptsTheAnswersAreTheSame) {
  for (const bool shared : {true, false}) {
    for (const bool divides : {true, false}) {
      SchedulerConfig config = small();
      config.approximate_from = divides ? 13 : 6;
      config.approximate_shared = shared;
      if (divides) {
        config.groups = 3;
        config.prompts_alone = true;
        config.own_prompt = 12;
      } else {
        config.shared_tokens = 16;
      }
      for (uint32_t seed = 500; seed < 515; ++seed) random_run(seed, config, 60, 1 + seed % 2);
      config.pages = 12;
      int64_t preemptions = 0;
      for (uint32_t seed = 530; seed < 550; ++seed) preemptions += random_run(seed, config, 40);
      EXPECT_GT(preemptions, 0);
    }
  }
}

// An exact request finds approximate pages alone: it computes its prompt, and the tokens count. The
// other way round, and for requests alike, pages are found as ever.
TEST(ApproximatePages, ExactRequestsPassApproximatePages) {
  SchedulerConfig config = small();
  config.approximate_from = 10;
  config.approximate_shared = true;
  Machine machine(config);
  const auto cached = [&](int64_t tokens, bool exact, bool score = false) {
    const RequestId id = machine.submit(std::vector<int32_t>(tokens, 1), 1, "", "", score, exact);
    while (machine.answer(id, tokens).empty()) machine.step();
    const int64_t found = machine.scheduler.cached_tokens(id);
    EXPECT_EQ(machine.scheduler.approximates(id), tokens >= 10 && !exact && !score);
    machine.scheduler.end(id);
    return found;
  };
  const auto passed = [&] { return machine.scheduler.counts().approximate_passed; };
  EXPECT_EQ(cached(21, false), 0);
  EXPECT_EQ(cached(21, false), 20);
  EXPECT_EQ(passed(), 0);
  EXPECT_EQ(cached(21, true), 0) << "approximate pages alone";
  EXPECT_EQ(passed(), 20);
  EXPECT_EQ(cached(21, true), 20);
  EXPECT_EQ(cached(9, false), 8) << "a short prompt is exact";
  EXPECT_EQ(passed(), 20);
  EXPECT_EQ(cached(29, false), 20) << "approximate pages";
  EXPECT_EQ(cached(29, true), 20) << "of 28 tokens 20 are there, exact";
  EXPECT_EQ(passed(), 28);
  EXPECT_EQ(cached(29, false, true), 0) << "a scored prompt needs every logit";
  EXPECT_EQ(passed(), 28);
}

// A client's salt names no pages of the other kind.
TEST(ApproximatePages, SaltsDoNotReachTheOtherKindOfPages) {
  SchedulerConfig config = small();
  config.approximate_from = 10;
  config.approximate_shared = true;
  Machine machine(config);
  for (const char* salt : {"", "approximate\n", "exact\n"}) {
    for (const bool exact : {false, true}) {
      const RequestId id = machine.submit(std::vector<int32_t>(21, 1), 1, "", salt, false, exact);
      while (machine.answer(id, 21).empty()) machine.step();
      EXPECT_EQ(machine.scheduler.cached_tokens(id), 0) << salt << exact;
      machine.scheduler.end(id);
    }
  }
}

}  // namespace
}  // namespace braid
