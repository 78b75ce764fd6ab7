// The products of experts give, bit for bit, what linear() gives for each expert's rows; combine
// against f64.
#include <algorithm>
#include <numeric>

#include "backend/cpu/kernel_testing.h"
#include "backend/cpu/linear_case.h"
#include "braid/kernels/cpu/linear/expert_linear.h"
#include "braid/kernels/cpu/pointwise/combine.h"

namespace braid::cpu::linear_test {
namespace {

using testing::kNaN;

struct ExpertCase {
  int64_t T = 1, k = 1, E = 1, N = 1, K = 1;  // K in blocks of the dtypes
  Gate gate = Gate::none;
  bool gathers = false, bias = false, sliced = false, skewed = false;
};

std::ostream& operator<<(std::ostream& out, const ExpertCase& c) {
  return out << "T " << c.T << " k " << c.k << " E " << c.E << " N " << c.N << " K " << c.K
             << " gate " << static_cast<int>(c.gate) << " gathers " << c.gathers << " bias "
             << c.bias << " sliced " << c.sliced << " skewed " << c.skewed;
}

// Experts that lie apart, in an order of their own.
struct TestExperts {
  TestExperts(DType dtype, const ExpertCase& c, int64_t K, std::mt19937& rng) {
    for (int64_t e = 0; e < c.E; ++e) {
      each.push_back(std::make_unique<TestWeight>(dtype, c.N, K, c.sliced, rng));
      bias.insert(bias.end(), each.back()->bias.begin(), each.back()->bias.end());
      matrices.push_back(each.back()->view.data);
    }
    // A slice moves the first matrix's data; the others move as far.
    const TensorView& first = each[0]->view;
    const int64_t left = first.data - each[0]->bytes.data();
    for (std::byte*& m : matrices) m -= left;
    view = {first.data, dtype, {c.E, c.N, K}, first.row_bytes, matrices.data()};
  }
  std::vector<std::unique_ptr<TestWeight>> each;
  std::vector<std::byte*> matrices;
  std::vector<float> bias;
  TensorView view;
};

void check(const std::vector<DType>& dtypes, const ExpertCase& c, std::mt19937& rng) {
  int64_t block = 1;
  for (DType dtype : dtypes) block = std::lcm(block, int64_t{info(dtype).block_elems});
  const int64_t K = c.K * block, R = c.T * c.k;
  // Experts that tokens choose; the first k of them where choices are skewed.
  std::vector<std::vector<int32_t>> tokens(static_cast<size_t>(c.E));
  for (int64_t t = 0; t < c.T; ++t) {
    std::vector<size_t> order(static_cast<size_t>(c.E));
    std::iota(order.begin(), order.end(), 0);
    if (!c.skewed) std::shuffle(order.begin(), order.end(), rng);
    for (int64_t j = 0; j < c.k; ++j) {
      tokens[order[static_cast<size_t>(j)]].push_back(static_cast<int32_t>(t));
    }
  }
  std::vector<int32_t> row, begin = {0};
  for (const auto& own : tokens) {
    row.insert(row.end(), own.begin(), own.end());
    begin.push_back(static_cast<int32_t>(row.size()));
  }
  const int64_t ldx = K + 3, ldy = c.N + 5;
  const std::vector<float> x = random_floats((c.gathers ? c.T : R) * ldx, rng);
  std::vector<std::unique_ptr<TestExperts>> experts;
  std::vector<ExpertWeight> weights;
  for (DType dtype : dtypes) {
    experts.push_back(std::make_unique<TestExperts>(dtype, c, K, rng));
    weights.push_back({experts.back()->view, c.bias ? experts.back()->bias.data() : nullptr});
  }
  for (LinearIsa isa : usable_linear_isas()) {
    std::vector<float> want(static_cast<size_t>(R * ldy), kNaN);
    for (int64_t e = 0; e < c.E; ++e) {
      const int64_t M = std::ssize(tokens[static_cast<size_t>(e)]);
      std::vector<float> rows;
      for (int64_t i = 0; i < M; ++i) {
        const int64_t from = c.gathers ? row[static_cast<size_t>(begin[e] + i)] : begin[e] + i;
        rows.insert(rows.end(), x.begin() + from * ldx, x.begin() + (from + 1) * ldx);
      }
      std::vector<LinearWeight> one;
      for (const auto& w : experts) {
        one.push_back({.w = matrix(w->view, e),
                       .bias = c.bias ? w->bias.data() + e * c.N : nullptr,
                       .y = want.data() + begin[e] * ldy,
                       .ldy = ldy});
      }
      run_linear({.x = rows.data(), .ldx = ldx, .M = M, .K = K, .weights = one, .gate = c.gate},
                 isa, 1);
    }
    for (int threads : {1, 2, 3}) {
      SCOPED_TRACE(::testing::Message() << name(isa) << ", " << threads << " threads");
      const ExpertLinearDesc desc = {.rows = R + 2,
                                     .rows_of_one = c.gathers ? c.T : R,
                                     .K = K,
                                     .weights = dtypes,
                                     .gate = c.gate,
                                     .threads = threads};
      std::vector<float> y(static_cast<size_t>(R * ldy), kNaN);
      const int64_t size = expert_linear_scratch_bytes(desc);
      constexpr int64_t kGuard = 256;
      std::vector<std::byte> buffer(static_cast<size_t>(size + 64 + kGuard), std::byte{0xff});
      std::byte* scratch = buffer.data() + (-reinterpret_cast<uintptr_t>(buffer.data()) & 63);
      const ExpertLinearParams params = {.x = x.data(),
                                         .ldx = ldx,
                                         .row = c.gathers ? row.data() : nullptr,
                                         .begin = begin.data(),
                                         .weights = weights,
                                         .gate = c.gate,
                                         .y = y.data(),
                                         .ldy = ldy};
      run_team(threads, [&](const Team& team) { expert_linear(params, desc, isa, scratch, team); });
      for (int64_t i = 0; i < kGuard - 64; ++i) {
        ASSERT_EQ(scratch[size + i], std::byte{0xff}) << "scratch overrun at +" << i;
      }
      ASSERT_TRUE(y.empty() || std::memcmp(y.data(), want.data(), y.size() * sizeof(float)) == 0);
    }
  }
}

TEST(ExpertLinear, GivesTheBitsOfLinear) {
  const uint32_t seed = std::random_device{}();
  std::mt19937 rng(seed);
  const ExpertCase cases[] = {
      {.T = 1, .k = 2, .E = 8, .N = 19, .K = 2, .gate = Gate::silu, .gathers = true},
      {.T = 5, .k = 3, .E = 3, .N = 33, .K = 1, .bias = true},
      {.T = 9, .k = 2, .E = 4, .N = 40, .K = 3, .gathers = true, .skewed = true},
      {.T = 31,
       .k = 1,
       .E = 6,
       .N = 7,
       .K = 1,
       .gate = Gate::gelu_tanh,
       .gathers = true,
       .bias = true},
      {.T = 50, .k = 2, .E = 5, .N = 65, .K = 2, .sliced = true},
      {.T = 70, .k = 1, .E = 40, .N = 17, .K = 1, .skewed = true},
  };
  for (DType dtype : kDTypes) {
    for (const ExpertCase& c : cases) {
      SCOPED_TRACE(::testing::Message() << name(dtype) << ", " << c << ", seed " << seed);
      check(std::vector<DType>(c.gate == Gate::none ? 1 : 2, dtype), c, rng);
      if (HasFatalFailure()) return;
    }
  }
}

TEST(ExpertLinear, GateAndUpMayDiffer) {
  const uint32_t seed = std::random_device{}();
  std::mt19937 rng(seed);
  for (const auto& [gate, up] : {std::pair(DType::q4_k, DType::q6_k),
                                 {DType::q8_0, DType::f16},
                                 {DType::bf16, DType::q5_1}}) {
    for (int64_t T : {1, 40}) {
      SCOPED_TRACE(::testing::Message()
                   << name(gate) << ", " << name(up) << ", T " << T << ", seed " << seed);
      check({gate, up},
            {.T = T, .k = 2, .E = 3, .N = 37, .K = 1, .gate = Gate::silu, .gathers = true}, rng);
    }
  }
}

// Many rows are packed by all threads together, few by each for itself.
TEST(ExpertLinear, ManyTokens) {
  const uint32_t seed = std::random_device{}();
  std::mt19937 rng(seed);
  SCOPED_TRACE(::testing::Message() << "seed " << seed);
  for (bool skewed : {false, true}) {
    check({DType::q4_1},
          {.T = 4096, .k = 2, .E = 4, .N = 40, .K = 2, .gathers = true, .skewed = skewed}, rng);
    check({DType::f32}, {.T = 4096, .k = 1, .E = 4, .N = 40, .K = 40, .skewed = skewed}, rng);
  }
}

TEST(ExpertLinear, NoRows) {
  std::mt19937 rng(1);
  check({DType::q8_0}, {.T = 0, .k = 2, .E = 3, .N = 8, .K = 1}, rng);
}

TEST(Combine, MatchesF64) {
  using namespace testing;
  std::mt19937 random(11);
  for (int64_t cols : {1, 7, 16, 257, 600}) {
    for (int64_t rows : {1, 3, 20}) {
      for (int64_t k : {1, 2, 8}) {
        // Alone, with a shared expert, with its gate, with rows that other ranks have.
        for (int form = 0; form < 4; ++form) {
          const int64_t stride = cols + 3;
          const std::vector<float> x = testing::random_floats(random, rows * k * stride),
                                   weight = testing::random_floats(random, rows * k),
                                   shared = testing::random_floats(random, rows * stride),
                                   gate = testing::random_floats(random, rows);
          std::vector<int32_t> place(static_cast<size_t>(rows * k));
          std::iota(place.begin(), place.end(), 0);
          std::shuffle(place.begin(), place.end(), random);
          for (int32_t& row : place) row = form == 3 && random() % 2 == 0 ? -1 : row;
          std::vector<float> y;
          sweep_teams([&] { y = poisoned(rows * stride); },
                      [&](const Team& team, Isa isa) {
                        combine({.x = x.data(),
                                 .weight = weight.data(),
                                 .place = place.data(),
                                 .shared = form == 1 || form == 2 ? shared.data() : nullptr,
                                 .gate = form == 2 ? gate.data() : nullptr,
                                 .y = y.data(),
                                 .rows = rows,
                                 .k = k,
                                 .cols = cols,
                                 .x_stride = stride,
                                 .shared_stride = stride,
                                 .y_stride = stride},
                                team, isa);
                      },
                      [&] {
                        Worst worst;
                        for (int64_t t = 0; t < rows; ++t) {
                          for (int64_t c = 0; c < cols; ++c) {
                            double want = 0, size = 0;
                            const auto add = [&](double factor, double value) {
                              want += factor * value;
                              size += std::abs(factor * value);
                            };
                            for (int64_t j = 0; j < k; ++j) {
                              const int32_t row = place[t * k + j];
                              if (row >= 0) add(weight[t * k + j], x[row * stride + c]);
                            }
                            const double g = 1 / (1 + std::exp(-static_cast<double>(gate[t])));
                            const bool adds = form == 1 || form == 2;
                            if (adds) add(form == 2 ? g : 1, shared[t * stride + c]);
                            worst.see(
                                t * stride + c, y[t * stride + c], want,
                                (static_cast<double>(k) + 8) * 2 * testing::kEps * size + 1e-30);
                          }
                          for (int64_t c = cols; c < stride; ++c) {
                            ASSERT_TRUE(std::isnan(y[t * stride + c])) << "wrote past a row";
                          }
                        }
                        expect_close(worst);
                      });
        }
      }
    }
  }
}

// Dispatch, then combine with weights of 1, adds a token to itself k times, bit for bit.
TEST(Combine, OfWhatWasOnlyMovedIsKTimesIt) {
  std::mt19937 random(12);
  const int64_t T = 37, cols = 50;
  for (int64_t k : {1, 2, 4, 8}) {
    const std::vector<float> x = testing::random_floats(random, T * cols);
    std::vector<float> moved, weight(static_cast<size_t>(T * k), 1.f),
        y = testing::poisoned(T * cols);
    std::vector<int32_t> place(static_cast<size_t>(T * k));
    std::iota(place.begin(), place.end(), 0);
    std::shuffle(place.begin(), place.end(), random);
    moved.resize(static_cast<size_t>(T * k * cols));
    for (int64_t i = 0; i < T * k; ++i) {
      std::copy_n(x.begin() + i / k * cols, cols, moved.begin() + place[i] * cols);
    }
    combine({.x = moved.data(),
             .weight = weight.data(),
             .place = place.data(),
             .y = y.data(),
             .rows = T,
             .k = k,
             .cols = cols,
             .x_stride = cols,
             .shared_stride = cols,
             .y_stride = cols},
            Team{});
    for (size_t i = 0; i < y.size(); ++i) {
      float want = x[i];
      for (int64_t j = 1; j < k; ++j) want += x[i];
      ASSERT_EQ(y[i], want);
    }
  }
}

}  // namespace
}  // namespace braid::cpu::linear_test
