#pragma once

#include <array>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "braid/backend/cpu/cpu_backend.h"
#include "braid/fabric/local/run_ranks.h"
#include "braid/fabric/symmetric_memory.h"
#include "braid/kernels/cpu/register.h"
#include "braid/parallel/mesh.h"
#include "braid/runtime/executor.h"
#include "braid/schedule/plan_schedules.h"
#include "braid/schedule/strategies/registry.h"
#include "unit/parallel/exchange_programs.h"

// Ranks of threads that exchange expert rows.
namespace braid::testing_exchange {

// Experts of each token of a step, [tokens][k]; the tokens are dealt to ranks evenly.
using Choices = std::vector<std::vector<int64_t>>;

enum class Skew { random, one_expert, one_rank };

inline Choices choices(const Sizes& s, int64_t tokens, Skew skew, uint64_t seed) {
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

struct World {
  // `F`: hidden units of the experts, whose weights are random; 0: they are the identity.
  // `micro_batches`: parts of each step's tokens.
  World(const Sizes& s, const std::string& strategy, fabric::Duration deadline, bool shared = false,
        int64_t F = 0, int threads = 1)
      : World(s, *find_strategy(strategy), deadline, shared, F, threads, 1) {}
  World(const Sizes& s, const OpScheduler& strategy, fabric::Duration deadline, bool shared,
        int64_t F, int threads, int micro_batches)
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
                        .micro_batches = {},
                        .topology = {.machines = 1, .devices = s.ranks()},
                        .price = {}};
    for (int mb = 0; mb < micro_batches; ++mb) {
      const int64_t shard = even_part(s.S, micro_batches, mb).size();
      request.micro_batches.push_back(
          {.capacity = {.token = s.ranks() * shard, .sequence = 1, .row = 1, .shard = shard}});
    }
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
    plan_schedules(plan, strategy, request);
  }

  int micro_batches() const { return static_cast<int>(plan.schedules[0].micro_batches.size()); }

  // Tokens of a step of n that rank r has, by micro-batch: an even part of each micro-batch's.
  std::vector<Range> own_tokens(int64_t n, int r) const {
    std::vector<Range> own;
    for (int mb = 0; mb < micro_batches(); ++mb) {
      const Range part = even_part(n, micro_batches(), mb);
      const Range rows = even_part(part.size(), sizes.ranks(), r);
      own.push_back({part.begin + rows.begin, part.begin + rows.end});
    }
    return own;
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
        std::vector<Extents> counts;
        int64_t row = 0;
        for (const Range& own : own_tokens(n, endpoint.rank())) {
          const int64_t part =
              even_part(n, micro_batches(), static_cast<int64_t>(counts.size())).size();
          counts.push_back({.token = part, .sequence = 1, .row = 1, .shard = own.size()});
          for (int64_t t = own.begin; t < own.end; ++t, ++row) {
            auto* hidden_state = executor.input("x").row_as<float>(row);
            for (int64_t c = 0; c < sizes.C; ++c) hidden_state[c] = x(t, c);
            auto* logits = executor.input("logits").row_as<float>(row);
            std::fill_n(logits, sizes.E(), -100.0f);
            for (int64_t e : chosen[static_cast<size_t>(t)]) logits[e] = 100;  // a sigmoid of 1
          }
        }
        endpoint.traffic().reset();
        executor.run(counts);
        const TensorView out = executor.host_output(0, row);
        y[r].assign(out.as<const float>(), out.as<const float>() + row * sizes.C);
      }
    });
    return y;
  }

  // The same by token, [n, C].
  std::vector<float> run_by_token(const Choices& chosen) {
    const auto n = static_cast<int64_t>(chosen.size());
    const std::vector<std::vector<float>> rows = run({chosen});
    std::vector<float> y(static_cast<size_t>(n * sizes.C));
    for (int r = 0; r < sizes.ranks(); ++r) {
      auto from = rows[static_cast<size_t>(r)].begin();
      for (const Range& own : own_tokens(n, r)) {
        std::copy_n(from, own.size() * sizes.C, y.begin() + own.begin * sizes.C);
        from += own.size() * sizes.C;
      }
    }
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

}  // namespace braid::testing_exchange
