// Fused ops over ops of two micro-batches compute the function of the ops that they join.
#include <gtest/gtest.h>

#include <random>

#include "dist/exchange_world.h"
#include "unit/schedule/joined_halves.h"

namespace braid {
namespace {

using testing_exchange::choices;
using testing_exchange::Choices;
using testing_exchange::Sizes;
using testing_exchange::Skew;
using testing_exchange::World;

constexpr std::chrono::seconds kLong(30);

TEST(JoinedOps, HaveTheBitsOfOneMicroBatchInOrder) {
  const uint64_t seed = std::random_device{}();
  for (const Sizes& s :
       {Sizes{.experts = {{0, 8}}, .S = 12}, Sizes{.experts = {{0, 4}, {4, 8}}, .S = 40},
        Sizes{.experts = {{0, 3}, {3, 5}, {5, 7}}, .k = 3, .S = 6, .C = 33},
        Sizes{.experts = {{0, 2}, {0, 2}, {2, 2}, {2, 4}}, .k = 2, .S = 18}}) {
    for (const int threads : {1, 3}) {
      World whole(s, "sequential", kLong, false, 24, threads);
      World halves(s, testing_schedule::JoinedHalves{}, kLong, false, 24, threads, 2);
      for (const Schedule& schedule : halves.plan.schedules) {
        std::vector<std::string> joined;
        for (const Launch& launch : schedule.launches) {
          if (!launch.joined.empty()) joined.push_back(micro_batches_of(launch));
        }
        EXPECT_EQ(joined, (std::vector<std::string>{"0+1", "1+0"}));
      }
      for (const Skew skew : {Skew::random, Skew::one_expert, Skew::one_rank}) {
        for (const int64_t tokens : {int64_t{1}, s.S, s.ranks() * s.S - 1}) {
          SCOPED_TRACE(fmt::format("{} ranks, {} threads, {} tokens, skew {}, seed {}", s.ranks(),
                                   threads, tokens, static_cast<int>(skew), seed));
          const Choices chosen = choices(s, tokens, skew, seed);
          halves.run({chosen, chosen});  // a step that follows another
          EXPECT_EQ(halves.run_by_token(chosen), whole.run_by_token(chosen));
        }
      }
    }
  }
}

}  // namespace
}  // namespace braid
