// Expert rows over ranks of threads: sums, bytes on the wire, and ranks that stop.
#include <gtest/gtest.h>

#include <random>
#include <thread>

#include "dist/exchange_world.h"
#include "dist/fabric_testing.h"

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
                         Sizes{.experts = {{0, 32}, {32, 64}}, .k = 6, .S = 300, .C = 33}}) {
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

// A rank that stops in a phase is named by the deadline of the others.
TEST(ExpertExchange, ARankThatStopsEndsTheJobAtTheDeadline) {
  const Sizes s = {.experts = {{0, 2}, {2, 4}, {4, 6}}};
  for (const char* kind : {"choose", "tell", "dispatch", "arrange", "return_rows"}) {
    SCOPED_TRACE(kind);
    World world(s, "sequential", std::chrono::milliseconds(200));
    cpu::Kernel kernel = world.ranks[1]->table.at(kind);
    const auto bind = kernel.bind;
    kernel.bind = [bind](const cpu::LaunchArgs& args) -> cpu::BoundKernel {
      return [run = bind(args)](const cpu::Team& team) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1500));
        run(team);
      };
    };
    world.ranks[1]->table.add(kind, kernel);
    try {
      world.run({choices(s, 6, Skew::random, 1)});
      ADD_FAILURE() << "no error";
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::kDeadline) << e.what();
    }
  }
}

}  // namespace
}  // namespace braid
