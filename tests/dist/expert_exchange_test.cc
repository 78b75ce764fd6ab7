// Expert rows over ranks of threads: sums, bytes on the wire, and ranks that stop.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <random>
#include <thread>

#include "dist/exchange_world.h"
#include "dist/fabric_testing.h"
#include "unit/schedule/joined_halves.h"

namespace braid {
namespace {

using testing_exchange::choices;
using testing_exchange::Choices;
using testing_exchange::Sizes;
using testing_exchange::Skew;
using testing_exchange::World;

// Bytes that rank r puts to others, from the choices alone.
int64_t wire_bytes(const Sizes& s, const Choices& chosen, int r) {
  const auto tokens = static_cast<int64_t>(chosen.size());
  const auto rows = [&](int from, int to) {
    const Range own = even_part(tokens, s.ranks(), from);
    int64_t n = 0;
    for (int64_t t = own.begin; t < own.end; ++t) {
      n += std::ranges::any_of(chosen[static_cast<size_t>(t)], [&](int64_t e) {
        const Range& held = s.experts[static_cast<size_t>(to)];
        return held.begin <= e && e < held.end;
      });
    }
    return n;
  };
  int64_t bytes = 0;
  for (int q = 0; q < s.ranks(); ++q) {
    if (q == r) continue;
    bytes += 4 + rows(r, q) * (4 * s.C + 8 * s.k);  // the rows, and what is told about them
    bytes += rows(q, r) * 4 * s.C;                  // sums on the way back
  }
  return bytes;
}

constexpr std::chrono::seconds kLong(30);

TEST(ExpertExchange, WithWeightsOfOneIsKTimesTheIdentity) {
  const uint64_t seed = std::random_device{}();
  for (const Sizes& s : {Sizes{.experts = {{0, 8}}}, Sizes{.experts = {{0, 4}, {4, 8}}, .S = 9},
                         Sizes{.experts = {{0, 3}, {3, 5}, {5, 7}}, .k = 3},
                         Sizes{.experts = {{0, 1}, {1, 1}, {1, 2}, {2, 4}}, .k = 4, .S = 3},
                         Sizes{.experts = {{0, 32}, {32, 64}}, .k = 6, .S = 300, .C = 33},
                         Sizes{.experts = {{0, 8}}, .S = 7, .room = 3},
                         Sizes{.experts = {{0, 3}, {3, 5}, {5, 7}}, .k = 3, .S = 8, .room = 5},
                         Sizes{.experts = {{0, 1}, {1, 1}, {1, 2}, {2, 4}}, .k = 4, .room = 1}}) {
    for (const std::string& strategy : strategy_names(ProgramKind::experts)) {
      World world(s, strategy, kLong);
      for (const Skew skew : {Skew::random, Skew::one_expert, Skew::one_rank}) {
        for (const int64_t tokens : {int64_t{1}, s.S, s.ranks() * s.S}) {
          SCOPED_TRACE(fmt::format("{}, {} ranks, k {}, {} tokens, skew {}, seed {}", strategy,
                                   s.ranks(), s.k, tokens, static_cast<int>(skew), seed));
          const Choices chosen = choices(s, tokens, skew, seed);
          const auto y = world.run({chosen});
          for (int r = 0; r < s.ranks(); ++r) {
            const Range own = even_part(tokens, s.ranks(), r);
            for (int64_t i = 0; i < own.size() * s.C; ++i) {
              const float want = static_cast<float>(s.k) * World::x(own.begin + i / s.C, i % s.C);
              ASSERT_EQ(y[static_cast<size_t>(r)][static_cast<size_t>(i)], want);
            }
            EXPECT_EQ(
                world.fabric.endpoint(r).traffic().bytes(fabric::Verb::put, LinkClass::machine),
                wire_bytes(s, chosen, r));
          }
        }
      }
    }
  }
}

// The fused ops compute each sender's rows by themselves, with the bits of the ops they replace.
TEST(ExpertExchange, CometHasTheBitsOfTheOpsThatItReplaces) {
  const uint64_t seed = std::random_device{}();
  for (const Sizes& s : {Sizes{.experts = {{0, 8}}}, Sizes{.experts = {{0, 4}, {4, 8}}, .S = 40},
                         Sizes{.experts = {{0, 3}, {3, 5}, {5, 7}}, .k = 3, .C = 33},
                         Sizes{.experts = {{0, 2}, {0, 2}, {2, 2}, {2, 4}}, .k = 2, .S = 17}}) {
    for (const int threads : {1, 3}) {
      World plain(s, "sbo", kLong, false, 24, threads),
          fused(s, "comet", kLong, false, 24, threads);
      for (const Skew skew : {Skew::random, Skew::one_expert, Skew::one_rank}) {
        for (const int64_t tokens : {int64_t{1}, s.S, s.ranks() * s.S}) {
          SCOPED_TRACE(fmt::format("{} ranks, {} threads, {} tokens, skew {}, seed {}", s.ranks(),
                                   threads, tokens, static_cast<int>(skew), seed));
          const Choices chosen = choices(s, tokens, skew, seed);
          EXPECT_EQ(fused.run({chosen, chosen}), plain.run({chosen}));
          for (int r = 0; r < s.ranks(); ++r) {
            const auto bytes = [&](World& world) {
              return world.fabric.endpoint(r).traffic().bytes(fabric::Verb::put,
                                                              LinkClass::machine);
            };
            EXPECT_EQ(bytes(fused), bytes(plain));
          }
        }
      }
    }
  }
}

// However few rows a rank has room for: in rounds a row has the bits that it has in a single round,
// and the same bytes travel.
TEST(ExpertExchange, RoundsHaveTheBitsOfOne) {
  const uint64_t seed = std::random_device{}();
  for (const Sizes& s :
       {Sizes{.experts = {{0, 8}}, .S = 12}, Sizes{.experts = {{0, 4}, {4, 8}}, .S = 40},
        Sizes{.experts = {{0, 3}, {3, 5}, {5, 7}}, .k = 3, .S = 10, .C = 33},
        Sizes{.experts = {{0, 2}, {0, 2}, {2, 2}, {2, 4}}, .k = 2, .S = 18}}) {
    World one(s, "sequential", kLong, false, 24);
    for (const std::string& strategy : strategy_names(ProgramKind::experts)) {
      for (const int64_t room : {s.S / 4, s.S - 1}) {
        Sizes small = s;
        small.room = room;
        const auto found = find_strategy(strategy);
        const int halves = found->split({.tokens = 4096}).size() > 1 ? 2 : 1;
        World rounds(small, *found, kLong, false, 24, 2, halves);
        EXPECT_LT(rounds.plan.programs[0].capacity.expert_row,
                  one.plan.programs[0].capacity.expert_row);
        for (const Skew skew : {Skew::random, Skew::one_expert, Skew::one_rank}) {
          for (const int64_t tokens : {int64_t{1}, s.S, s.ranks() * s.S}) {
            SCOPED_TRACE(fmt::format("{}, {} ranks, room {}, {} tokens, skew {}, seed {}", strategy,
                                     s.ranks(), room, tokens, static_cast<int>(skew), seed));
            const Choices chosen = choices(s, tokens, skew, seed);
            EXPECT_EQ(rounds.run_by_token(chosen), one.run_by_token(chosen));
          }
        }
      }
    }
  }
}

// Arrived rows and the experts' results lie in the memory of a single round.
TEST(ExpertExchange, RoundsShareTheirMemory) {
  Sizes s = {.experts = {{0, 4}, {4, 8}}, .k = 4, .S = 512, .C = 64};
  const auto arena = [&](int64_t room) {
    s.room = room;
    return World(s, "sequential", kLong, false, 256).plan.schedules[0].memory.arena_bytes;
  };
  const int64_t one = arena(512), four = arena(128), sixteen = arena(32);
  EXPECT_LT(four, one / 2);
  EXPECT_LT(sixteen, four);
}

// Steps follow each other without a meeting between them, and ranks without tokens take part.
TEST(ExpertExchange, AThousandStepsWithIdleRanksEnd) {
  const Sizes s = {.experts = {{0, 2}, {2, 2}, {2, 6}}, .S = 2};
  World world(s, "sbo", kLong);
  std::vector<Choices> steps;
  for (uint64_t i = 0; i < 1000; ++i) {
    steps.push_back(choices(s, 1 + static_cast<int64_t>(i % 2), Skew::random, i));
  }
  const auto y = world.run(steps);
  EXPECT_EQ(y[0][0], 2 * World::x(0, 0));
}

// A launch of rank 1 that does `first` before its work; the error that ends the step on all ranks.
std::optional<Error> error_with(World& world, const char* kind,
                                const std::function<void()>& first) {
  cpu::Kernel kernel = world.ranks[1]->table.at(kind);
  const auto bind = kernel.bind;
  auto reached = std::make_shared<std::atomic<bool>>(false);
  kernel.bind = [bind, first, reached](const cpu::LaunchArgs& args) -> cpu::BoundKernel {
    return [run = bind(args), first, reached](const cpu::Team& team) {
      *reached = true;
      first();
      run(team);
    };
  };
  world.ranks[1]->table.add(kind, kernel);
  std::optional<Error> error;
  try {
    world.run({choices(world.sizes, 6, Skew::random, 1)});
  } catch (const Error& e) {
    error = e;
  }
  EXPECT_TRUE(*reached) << kind << " does not run";
  return error;
}

// A rank that is late, stops or dies in any phase, inside fused and joined ops too: the others wait
// no longer than their deadline, and the step ends with the error of the rank, or with its name.
TEST(ExpertExchange, ARankThatStopsOrDiesInAPhaseEndsTheJob) {
  using std::chrono::milliseconds;
  const Sizes s = {.experts = {{0, 2}, {2, 4}, {4, 6}}, .S = 4};
  const std::map<std::string, std::vector<const char*>> phases = {
      {"sequential",
       {"choose", "tell", "dispatch", "arrange", "expert_gated", "expert_linear", "combine",
        "return_rows"}},
      {"sbo", {"dispatch", "return_rows"}},
      {"comet", {"dispatch_gated", "linear_return"}},
      {"joined_halves", {"dispatch", "gated_push", "return_rows"}}};
  for (const auto& [strategy, kinds] : phases) {
    for (const char* kind : kinds) {
      SCOPED_TRACE(fmt::format("{} {}", strategy, kind));
      const auto error = [&](fabric::Duration deadline, const std::function<void()>& first) {
        if (strategy == "joined_halves") {
          World world(s, testing_schedule::JoinedHalves{}, deadline, false, 8, 1, 2);
          return error_with(world, kind, first);
        }
        World world(s, strategy, deadline, false, 8);
        return error_with(world, kind, first);
      };
      const auto late =
          error(milliseconds(200), [] { std::this_thread::sleep_for(milliseconds(900)); });
      ASSERT_TRUE(late);
      EXPECT_EQ(late->code(), ErrorCode::kDeadline) << late->what();
      EXPECT_THAT(late->what(), testing::HasSubstr("rank 1"));
      const auto dead = error(kLong, [] { fail(ErrorCode::kResource, "the rank is gone"); });
      ASSERT_TRUE(dead);
      EXPECT_EQ(dead->code(), ErrorCode::kResource) << dead->what();
      EXPECT_THAT(dead->what(), testing::HasSubstr("the rank is gone"));
    }
  }
}

}  // namespace
}  // namespace braid
