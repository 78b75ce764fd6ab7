// The communication ops and those fused with communication, as kernels: 1 to 4 ranks, step sizes
// from one token on, operands that move, late transfers.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "braid/kernels/cpu/comm/linear_all_reduce.h"
#include "braid/ops/comm.h"
#include "braid/ops/fused_comm.h"
#include "braid/ops/linear.h"
#include "braid/ops/norm.h"
#include "braid/tensor/quant.h"
#include "dist/rank_kernels.h"

namespace braid::testing_dist {
namespace {

using fabric::Guarded;
using fabric::LocalFabricConfig;

constexpr int64_t kTokens[] = {1, 2, 3, 5, 7, 16, 37};
constexpr int64_t kCapacity = 48;

// Ranks, threads of each, whether transfers are late at random.
using Setup = std::tuple<int, int, bool>;

class CommOps : public testing::TestWithParam<Setup> {
 protected:
  int P() const { return std::get<0>(GetParam()); }
  RankConfig rank(int64_t slot_bytes) const { return {std::get<1>(GetParam()), slot_bytes}; }
  LocalFabricConfig fabric() {
    LocalFabricConfig config{.ranks = P(), .threads_per_rank = std::get<1>(GetParam())};
    if (std::get<2>(GetParam())) config.links.jitter = {seed_, 200e-6};
    return config;
  }

  // Traces belong to a thread, so every rank says the seed.
  testing::Message seed_text() const { return testing::Message() << "seed " << seed_; }

  const uint64_t seed_ = std::random_device{}();
};

ValueType tokens_by(int64_t C) {
  return {DType::f32, {kCapacity, C}, BatchAxis::token};
}
ValueType shard_by(int64_t C, int P) {
  return {DType::f32, {ceil_div(kCapacity, P), C}, BatchAxis::shard};
}
Attrs comm_attrs(int P) {
  return Attrs::of(ops::CommAttrs{.axis = "tp", .ranks = P});
}
Attrs gather_attrs(int P) {
  return Attrs::of(ops::CommAttrs{"tp", P, 0, ops::token_parts(kCapacity, P)});
}
void fill(Guarded<float>& x, uint64_t call, int rank, int64_t live) {
  for (int64_t i = 0; i < live; ++i) x[i] = fabric::float_of(call, rank, i);
}

TEST_P(CommOps, PartsOfTokensAreSummedTakenAndGathered) {
  run_ranks(fabric(), [&](fabric::Endpoint& endpoint) {
    SCOPED_TRACE(seed_text());
    const int P = endpoint.world_size(), me = endpoint.rank();
    RankKernels rank(endpoint, this->rank(256));
    std::vector<int> ranks(static_cast<size_t>(P));
    for (int p = 0; p < P; ++p) ranks[static_cast<size_t>(p)] = p;
    uint64_t call = seed_;
    for (int64_t C : {1, 7, 64}) {
      BoundOp scatter(rank, ops::kReduceScatter, comm_attrs(P), {tokens_by(C)}, {nullptr});
      BoundOp take(rank, ops::kTakeShard, Attrs::of(ops::TakeShardAttrs{"tp", P, me}),
                   {tokens_by(C)}, {nullptr});
      BoundOp gather(rank, ops::kAllGather, gather_attrs(P), {shard_by(C, P)}, {nullptr});
      EXPECT_EQ(gather.out_types()[0], tokens_by(C));
      for (int64_t n : kTokens) {
        SCOPED_TRACE(testing::Message() << n << " tokens of " << C);
        const Range mine = even_part(n, P, me);
        const int64_t S = ceil_div(kCapacity, P);
        ++call;
        Guarded<float> x(kCapacity * C), sums(S * C), taken(S * C), whole(kCapacity * C);
        Guarded<float> want_sums(S * C), want_taken(S * C), want_whole(kCapacity * C);
        fill(x, call, me, n * C);
        for (int64_t i = 0; i < n * C; ++i) want_whole[i] = fabric::sum_of(call, ranks, i);
        for (int64_t i = 0; i < mine.size() * C; ++i) {
          want_sums[i] = want_whole[mine.begin * C + i];
          want_taken[i] = x[mine.begin * C + i];
        }
        scatter.run(n, {x.data()}, {sums.data()});
        expect_same(sums, want_sums, mine.size() * C, "reduce_scatter");
        take.run(n, {x.data()}, {taken.data()});
        expect_same(taken, want_taken, mine.size() * C, "take_shard");
        gather.run(n, {sums.data()}, {whole.data()});
        expect_same(whole, want_whole, n * C, "all_gather");
      }
    }
  });
}

TEST_P(CommOps, ColumnsAreTaken) {
  run_ranks(fabric(), [&](fabric::Endpoint& endpoint) {
    SCOPED_TRACE(seed_text());
    const int P = endpoint.world_size(), me = endpoint.rank();
    RankKernels rank(endpoint, this->rank(256));
    for (int64_t C : {1, 7, 64}) {
      std::vector<Range> parts;  // each with a column of the next rank's, where there is one
      for (int r = 0; r < P; ++r) {
        const Range part = even_part(C, P, r);
        parts.push_back({part.begin, std::min(part.end + 1, C)});
      }
      const Range mine = parts[static_cast<size_t>(me)];
      BoundOp take(rank, ops::kTakeShard, Attrs::of(ops::TakeShardAttrs{"tp", P, me, parts}),
                   {tokens_by(C)}, {nullptr});
      for (int64_t n : kTokens) {
        SCOPED_TRACE(testing::Message() << n << " tokens of " << C);
        Guarded<float> x(kCapacity * C), taken(kCapacity * mine.size()),
            want(kCapacity * mine.size());
        fill(x, seed_, me, n * C);
        for (int64_t i = 0; i < n * mine.size(); ++i) {
          want[i] = x[i / mine.size() * C + mine.begin + i % mine.size()];
        }
        take.run(n, {x.data()}, {taken.data()});
        expect_same(taken, want, n * mine.size(), "take_shard");
      }
    }
  });
}

TEST_P(CommOps, FusedNormsGiveTheBitsOfTheirParts) {
  run_ranks(fabric(), [&](fabric::Endpoint& endpoint) {
    SCOPED_TRACE(seed_text());
    const int P = endpoint.world_size(), me = endpoint.rank();
    for (int64_t slot_bytes : {int64_t{320}, int64_t{64 << 10}}) {  // one row, all rows
      RankKernels rank(endpoint, this->rank(slot_bytes));
      uint64_t call = seed_;
      for (int64_t C : {5, 64, 77}) {
        std::vector<float> w(static_cast<size_t>(C));
        for (int64_t c = 0; c < C; ++c) {
          w[static_cast<size_t>(c)] = fabric::float_of(seed_ + 1, 0, c);
        }
        const ValueType weight = {DType::f32, {C}};
        const ValueType whole = tokens_by(C), part = shard_by(C, P);
        const Attrs norm = Attrs::of(ops::RmsNormAttrs{1e-5f, C});
        const Attrs fused = Attrs::of(ops::ReduceNormAttrs{"tp", P, 1e-5f});
        BoundOp scatter(rank, ops::kReduceScatter, comm_attrs(P), {whole}, {nullptr});
        BoundOp part_norm(rank, ops::kAddRmsNorm, norm, {part, part, weight},
                          {nullptr, nullptr, w.data()});
        BoundOp gather(rank, ops::kAllGather, gather_attrs(P), {part}, {nullptr});
        BoundOp reduce(rank, ops::kAllReduce, comm_attrs(P), {whole}, {nullptr});
        BoundOp whole_norm(rank, ops::kAddRmsNorm, norm, {whole, whole, weight},
                           {nullptr, nullptr, w.data()});
        BoundOp fused_parts(rank, ops::kReduceScatterAddRmsNormAllGather, fused,
                            {whole, part, weight}, {nullptr, nullptr, w.data()});
        BoundOp fused_whole(rank, ops::kAllReduceAddRmsNorm, fused, {whole, whole, weight},
                            {nullptr, nullptr, w.data()});
        for (int64_t n : kTokens) {
          SCOPED_TRACE(testing::Message() << n << " tokens of " << C << ", slots " << slot_bytes);
          const Range mine = even_part(n, P, me);
          const int64_t S = ceil_div(kCapacity, P);
          ++call;
          Guarded<float> x(kCapacity * C), r(kCapacity * C), r_part(S * C);
          fill(x, call, me, n * C);
          fill(r, call * 2 + 1, 99, n * C);
          for (int64_t i = 0; i < mine.size() * C; ++i) r_part[i] = r[mine.begin * C + i];

          Guarded<float> z_part(S * C), s_part(S * C), y_part(S * C), y(kCapacity * C);
          scatter.run(n, {x.data()}, {z_part.data()});
          part_norm.run(n, {r_part.data(), z_part.data()}, {s_part.data(), y_part.data()});
          gather.run(n, {y_part.data()}, {y.data()});
          Guarded<float> fs_part(S * C), fy(kCapacity * C);
          fused_parts.run(n, {x.data(), r_part.data()}, {fs_part.data(), fy.data()});
          expect_same(fs_part, s_part, mine.size() * C, "residual in parts");
          expect_same(fy, y, n * C, "gathered norm");

          Guarded<float> z(kCapacity * C), s(kCapacity * C), yw(kCapacity * C);
          reduce.run(n, {x.data()}, {z.data()});
          whole_norm.run(n, {r.data(), z.data()}, {s.data(), yw.data()});
          Guarded<float> fs(kCapacity * C), fyw(kCapacity * C);
          fused_whole.run(n, {x.data(), r.data()}, {fs.data(), fyw.data()});
          expect_same(fs, s, n * C, "residual");
          expect_same(fyw, yw, n * C, "norm");
          expect_same(fyw, y, n * C, "norm, residual divided or not");
        }
      }
    }
  });
}

// Columns of W that a rank has: uneven, whole blocks of 32.
Range columns_of(int P, int rank) {
  const Range part = even_part(2 * P + 1, P, rank);
  return {part.begin * 32, part.end * 32};
}

std::vector<std::byte> weight_of(DType dtype, int64_t N, int64_t K, uint64_t seed) {
  const int64_t row_bytes = bytes_of(dtype, K);
  std::vector<std::byte> w(static_cast<size_t>(N * row_bytes));
  std::vector<float> row(static_cast<size_t>(K));
  for (int64_t i = 0; i < N; ++i) {
    for (int64_t k = 0; k < K; ++k) {
      row[static_cast<size_t>(k)] = fabric::float_of(seed, static_cast<int>(i), k);
    }
    quantize_row(dtype, row.data(), w.data() + i * row_bytes, K);
  }
  return w;
}

TEST_P(CommOps, LinearAllReduceGivesTheBitsOfItsParts) {
  run_ranks(fabric(), [&](fabric::Endpoint& endpoint) {
    SCOPED_TRACE(seed_text());
    const int P = endpoint.world_size(), me = endpoint.rank();
    const int64_t K = columns_of(P, me).size(), N = 83;
    uint64_t call = seed_;
    for (int64_t slot_bytes : {int64_t{64}, int64_t{4096}}) {
      RankKernels rank(endpoint, this->rank(slot_bytes));
      for (DType dtype : {DType::f32, DType::f16, DType::q4_1, DType::q8_0}) {
        std::vector<std::byte> w = weight_of(dtype, N, K, seed_ + static_cast<uint64_t>(me));
        std::vector<float> bias(N);
        for (int64_t i = 0; i < N; ++i) {
          bias[static_cast<size_t>(i)] = fabric::float_of(seed_ + 5, 0, i);
        }
        const std::vector<ValueType> in = {tokens_by(K), {dtype, {N, K}}, {DType::f32, {N}}};
        const std::vector<void*> data = {nullptr, w.data(), bias.data()};
        BoundOp linear(rank, ops::kLinear, Attrs::of(ops::LinearAttrs{1, me != 0}), in, data);
        BoundOp reduce(rank, ops::kAllReduce, comm_attrs(P), {tokens_by(N)}, {nullptr});
        BoundOp fused(rank, ops::kLinearAllReduce,
                      Attrs::of(ops::LinearAllReduceAttrs{"tp", P, me != 0}), in, data);
        for (int64_t n : {1, 3, 9, 37}) {
          SCOPED_TRACE(testing::Message()
                       << n << " tokens, " << name(dtype) << ", slots " << slot_bytes);
          ++call;
          Guarded<float> x(kCapacity * K), part(kCapacity * N), want(kCapacity * N),
              y(kCapacity * N);
          fill(x, call, me, n * K);
          linear.run(n, {x.data()}, {part.data()});
          reduce.run(n, {part.data()}, {want.data()});
          fused.run(n, {x.data()}, {y.data()});
          expect_same(y, want, n * N, "linear_all_reduce");
        }
      }
    }
  });
}

TEST_P(CommOps, LinearAllReduceIsTheSameInAllTilesAndAlgorithms) {
  using fabric::AllReduceAlgorithm;
  run_ranks(fabric(), [&](fabric::Endpoint& endpoint) {
    SCOPED_TRACE(seed_text());
    const int P = endpoint.world_size(), me = endpoint.rank();
    RankKernels rank(endpoint, this->rank(16 << 10));
    const int threads = rank.pool.threads();
    const int64_t K = columns_of(P, me).size(), N = 83;
    std::vector<std::byte> w = weight_of(DType::q8_0, N, K, seed_ + static_cast<uint64_t>(me));
    const std::vector<ValueType> in = {tokens_by(K), {DType::q8_0, {N, K}}, {}};
    BoundOp linear(rank, ops::kLinear, Attrs::of(ops::LinearAttrs{1}), in,
                   {nullptr, w.data(), nullptr});
    BoundOp reduce(rank, ops::kAllReduce, comm_attrs(P), {tokens_by(N)}, {nullptr});
    const cpu::LinearIsa isa = cpu::best_linear_isa();
    std::vector<std::byte> memory(static_cast<size_t>(cpu::linear_all_reduce_scratch_bytes(
                                      kCapacity, N, K, DType::q8_0, threads, isa)) +
                                  64);
    std::byte* scratch = memory.data();
    while (reinterpret_cast<uintptr_t>(scratch) % 64 != 0) ++scratch;
    uint64_t call = seed_;
    for (int64_t n : {1, 9, 37}) {
      ++call;
      Guarded<float> x(kCapacity * K), part(kCapacity * N), want(kCapacity * N);
      fill(x, call, me, n * K);
      linear.run(n, {x.data()}, {part.data()});
      reduce.run(n, {part.data()}, {want.data()});
      for (const auto& [rows, cols] :
           {std::pair<int64_t, int64_t>{1, 16}, {1, 83}, {4, 13}, {16, 64}, {37, 30}, {64, 128}}) {
        for (AllReduceAlgorithm algorithm :
             {AllReduceAlgorithm::one_shot, AllReduceAlgorithm::two_shot}) {
          for (int lanes = 1; lanes <= threads; ++lanes) {
            const cpu::LinearAllReduceConfig config = {algorithm, std::min(rows, n),
                                                       std::min(cols, N), lanes};
            SCOPED_TRACE(to_string(config));
            Guarded<float> y(kCapacity * N);
            const cpu::LinearAllReduceParams params = {
                .x = x.data(),
                .M = n,
                .K = K,
                .w = make_view(w.data(), DType::q8_0, {N, K}),
                .y = y.data()};
            rank.pool.run([&](const cpu::Team& team) {
              cpu::linear_all_reduce(rank.comm, team, params, config, isa, scratch);
            });
            expect_same(y, want, n * N, "linear_all_reduce");
          }
        }
      }
    }
  });
}

std::string setup_name(const testing::TestParamInfo<Setup>& info) {
  const auto& [ranks, threads, late] = info.param;
  return fmt::format("{}ranks_{}threads{}", ranks, threads, late ? "_late" : "");
}

INSTANTIATE_TEST_SUITE_P(Ranks, CommOps,
                         testing::Values(Setup{1, 1, false}, Setup{2, 1, false}, Setup{2, 3, false},
                                         Setup{3, 1, false}, Setup{3, 2, false}, Setup{4, 1, false},
                                         Setup{2, 2, true}, Setup{3, 1, true}),
                         setup_name);

// Counted by the fabric, said by cost(): equal where parts are even.
TEST(CommOpsTraffic, WireBytesAreWhatTheCostSays) {
  constexpr int64_t C = 64, K = 64, n = 48;
  for (int P : {1, 2, 3, 4}) {
    SCOPED_TRACE(testing::Message() << P << " ranks");
    // A link that makes all_reduce two-shot, which is what its cost counts.
    fabric::run_ranks(
        LocalFabricConfig{.ranks = P, .links = {.machine_link = Link{100e6, 1e-9}}},
        [&](fabric::Endpoint& endpoint) {
          RankKernels rank(endpoint, {1, 16 << 10});
          std::vector<float> w(C, 1.0f), matrix(C * K, 0.5f);
          const ValueType whole = tokens_by(C), part = shard_by(C, P), weight = {DType::f32, {C}};
          const Attrs fused = Attrs::of(ops::ReduceNormAttrs{"tp", P, 1e-5f});
          BoundOp reduce(rank, ops::kAllReduce, comm_attrs(P), {whole}, {nullptr});
          BoundOp scatter(rank, ops::kReduceScatter, comm_attrs(P), {whole}, {nullptr});
          BoundOp gather(rank, ops::kAllGather, gather_attrs(P), {part}, {nullptr});
          BoundOp linear(
              rank, ops::kLinearAllReduce, Attrs::of(ops::LinearAllReduceAttrs{"tp", P, false}),
              {tokens_by(K), {DType::f32, {C, K}}, {}}, {nullptr, matrix.data(), nullptr});
          BoundOp parts(rank, ops::kReduceScatterAddRmsNormAllGather, fused, {whole, part, weight},
                        {nullptr, nullptr, w.data()});
          BoundOp norm(rank, ops::kAllReduceAddRmsNorm, fused, {whole, whole, weight},
                       {nullptr, nullptr, w.data()});
          std::vector<float> a(kCapacity * C), b(kCapacity * C), c(kCapacity * C), d(kCapacity * C);
          const auto check = [&](BoundOp& op, const char* what, auto... tags) {
            int64_t bytes = 0;
            for (const char* tag : {tags...}) {
              bytes += endpoint.traffic().bytes(fabric::Verb::put, LinkClass::machine, tag);
            }
            EXPECT_EQ(static_cast<double>(bytes), op.cost(n).wire_bytes) << what;
            EXPECT_EQ(bytes > 0, P > 1) << what;
            endpoint.traffic().reset();
          };
          endpoint.traffic().reset();
          reduce.run(n, {a.data()}, {b.data()});
          check(reduce, "all_reduce", "tp/all_reduce");
          scatter.run(n, {a.data()}, {b.data()});
          check(scatter, "reduce_scatter", "tp/reduce_scatter");
          gather.run(n, {a.data()}, {b.data()});
          check(gather, "all_gather", "tp/all_gather");
          linear.run(n, {a.data()}, {b.data()});
          check(linear, "linear_all_reduce", "tp/all_reduce");
          parts.run(n, {a.data(), b.data()}, {c.data(), d.data()});
          check(parts, "in parts", "tp/reduce_scatter", "tp/all_gather");
          norm.run(n, {a.data(), b.data()}, {c.data(), d.data()});
          check(norm, "whole", "tp/all_reduce");
        });
  }
}

TEST(CommOpsErrors, ARowThatNoSlotHoldsIsRefused) {
  EXPECT_THROW(fabric::run_ranks(2,
                                 [](fabric::Endpoint& endpoint) {
                                   RankKernels rank(endpoint, {1, 64});
                                   std::vector<float> w(17, 1.0f);
                                   BoundOp op(rank, ops::kAllReduceAddRmsNorm,
                                              Attrs::of(ops::ReduceNormAttrs{"tp", 2, 1e-5f}),
                                              {tokens_by(17), tokens_by(17), {DType::f32, {17}}},
                                              {nullptr, nullptr, w.data()});
                                 }),
               Error);
}

// Two micro-batches of odd sizes that run as one have other parts than each of them.
TEST(CommOpsErrors, RowsThatAreNoPartOfTheTokensAreCaught) {
  EXPECT_THROW(
      fabric::run_ranks(2,
                        [](fabric::Endpoint& endpoint) {
                          RankKernels rank(endpoint, {1, 64});
                          std::vector<float> x(64), y(64);
                          OpCall call;
                          BatchPart part{{}, {.token = 6, .shard = 4}};
                          Op op{.def = &ops::kTakeShard,
                                .attrs = Attrs::of(ops::TakeShardAttrs{"tp", 2, endpoint.rank()})};
                          const TensorView in[] = {make_view(reinterpret_cast<std::byte*>(x.data()),
                                                             DType::f32, {8, 4})};
                          const TensorView out[] = {make_view(
                              reinterpret_cast<std::byte*>(y.data()), DType::f32, {4, 4})};
                          call = {&op, in, out, BatchAxis::token, &part};
                          rank.table.at("take_shard").bind({.call = call})({});
                        }),
      std::logic_error);
}

}  // namespace
}  // namespace braid::testing_dist
