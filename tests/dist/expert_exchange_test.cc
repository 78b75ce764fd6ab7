// Expert rows over ranks of threads: sums, bytes on the wire, and ranks that stop.
#include <gtest/gtest.h>

#include <array>
#include <random>
#include <set>
#include <thread>

#include "braid/backend/cpu/cpu_backend.h"
#include "braid/fabric/local/run_ranks.h"
#include "braid/fabric/symmetric_memory.h"
#include "braid/kernels/cpu/register.h"
#include "braid/parallel/mesh.h"
#include "braid/runtime/executor.h"
#include "braid/schedule/plan_schedules.h"
#include "braid/schedule/strategies/registry.h"
#include "dist/fabric_testing.h"
#include "unit/parallel/exchange_programs.h"

namespace braid {
namespace {

using testing_exchange::Sizes;

// Experts of each token of a step, [tokens][k]; the tokens are dealt to ranks evenly.
using Choices = std::vector<std::vector<int64_t>>;

enum class Skew { random, one_expert, one_rank };

Choices choices(const Sizes& s, int64_t tokens, Skew skew, uint64_t seed) {
  std::mt19937_64 rng(seed);
  Choices all;
  for (int64_t t = 0; t < tokens; ++t) {
    std::set<int64_t> own;
    if (skew != Skew::random) {
      const int64_t first = skew == Skew::one_rank ? s.experts.back().begin : 0;
      for (int64_t j = 0; j < s.k; ++j) own.insert((first + j) % s.E());
    }
    while (std::ssize(own) < s.k)
      own.insert(static_cast<int64_t>(rng() % static_cast<uint64_t>(s.E())));
    all.emplace_back(own.begin(), own.end());
  }
  return all;
}

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

struct World {
  // `F`: hidden units of the experts, whose weights are random; 0: they are the identity.
  World(const Sizes& s, const std::string& strategy, fabric::Duration deadline, bool shared = false,
        int64_t F = 0, int threads = 1)
      : sizes(s),
        hidden(F),
        fabric({.ranks = s.ranks(),
                .threads_per_rank = kNumStreams + threads - 1,
                .deadline = deadline}),
        plan{testing_exchange::programs(s, shared, F), {}} {
    std::mt19937 rng(7);
    weights.resize(static_cast<size_t>(s.E() * F * s.C));
    for (float& w : weights) w = std::uniform_real_distribution<float>(-1, 1)(rng);
    PlanRequest request{.catalogs = {},
                        .micro_batches = {{.capacity = s.capacity()}},
                        .topology = {.machines = 1, .devices = s.ranks()},
                        .price = {}};
    const std::array meshes = {Mesh({{"ep", s.ranks()}})};
    for (int r = 0; r < s.ranks(); ++r) {
      auto& rank = *ranks.emplace_back(std::make_unique<Rank>(threads));
      fabric::Endpoint& endpoint = fabric.endpoint(r);
      rank.comms = std::make_unique<cpu::MeshComms>(endpoint, meshes);
      cpu::add_cpu_kernels(rank.table);
      cpu::add_one_sided_kernels(rank.table, endpoint, *rank.comms);
      cpu::add_reference_kernel(rank.table, testing_exchange::kTakeRows);
      request.catalogs.push_back(&rank.table);
    }
    plan_schedules(plan, *find_strategy(strategy), request);
  }

  // Runs steps of these choices; token t of the step is x(t, c). Results by rank, of the last step.
  std::vector<std::vector<float>> run(const std::vector<Choices>& steps) {
    std::vector<std::vector<float>> y(ranks.size());
    fabric::run_ranks(fabric, [&](fabric::Endpoint& endpoint) {
      const auto r = static_cast<size_t>(endpoint.rank());
      const auto weight = [&](const Value& value) {  // its experts' part of all
        auto* part = weights.data() + sizes.experts[r].begin * hidden * sizes.C;
        return make_view(reinterpret_cast<std::byte*>(part), DType::f32, value.type.shape);
      };
      Executor executor(plan.programs[r], plan.schedules[r], ranks[r]->backend, weight,
                        std::make_unique<fabric::SymmetricMemory>(
                            endpoint, plan.schedules[r].memory.arena_bytes, "arena"));
      for (const Choices& chosen : steps) {
        const auto n = static_cast<int64_t>(chosen.size());
        const Range own = even_part(n, sizes.ranks(), endpoint.rank());
        for (int64_t t = own.begin; t < own.end; ++t) {
          auto* row = executor.input("x").row_as<float>(t - own.begin);
          for (int64_t c = 0; c < sizes.C; ++c) row[c] = x(t, c);
          auto* logits = executor.input("logits").row_as<float>(t - own.begin);
          std::fill_n(logits, sizes.E(), -100.0f);
          for (int64_t e : chosen[static_cast<size_t>(t)]) logits[e] = 100;  // a sigmoid of 1
        }
        endpoint.traffic().reset();
        executor.run(Extents{.token = n, .sequence = 1, .row = 1, .shard = own.size()});
        const TensorView out = executor.host_output(0, own.size());
        y[r].assign(out.as<const float>(), out.as<const float>() + own.size() * sizes.C);
      }
    });
    return y;
  }

  static float x(int64_t t, int64_t c) { return static_cast<float>((t * 7 + c * 3) % 64 - 31); }

  struct Rank {
    explicit Rank(int threads) : table(threads), pool(threads, 64) {}
    cpu::KernelTable table;
    cpu::ThreadPool pool;
    std::unique_ptr<cpu::MeshComms> comms;
    cpu::CpuBackend backend{table, pool};
  };
  const Sizes sizes;
  const int64_t hidden;
  std::vector<float> weights;  // [E, F, C]: gate, up, and down by other shapes
  fabric::LocalFabric fabric;
  std::vector<std::unique_ptr<Rank>> ranks;
  Plan plan;
};

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
