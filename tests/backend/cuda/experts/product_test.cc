// The products of experts in both forms, and combine, against f64.
#include <algorithm>
#include <numeric>

#include "backend/cuda/pointwise/tensor.h"
#include "braid/backend/cuda/device.h"
#include "braid/kernels/cuda/experts/device/combine.h"
#include "braid/kernels/cuda/experts/device/expert_product.h"

namespace braid::cuda::test {
namespace {

struct Spec {
  int64_t T = 1, k = 1, E = 1, N = 1, K = 32;
  DType dtype = DType::bf16;
  bool gated = false, gathers = false, bias = false, skewed = false, gelu = false;
  int64_t nan_token = -1;
};

std::string describe(const Spec& s, uint32_t seed) {
  return fmt::format("{} T {} k {} E {} N {} K {} gated {} gathers {} bias {} skewed {} seed {}",
                     name(s.dtype), s.T, s.k, s.E, s.N, s.K, s.gated, s.gathers, s.bias, s.skewed,
                     seed);
}

// Sum and what bounds its error: the sum of absolute products.
struct Dot {
  double sum = 0, size = 0;
};

double act(bool gelu, double x) {
  const double z = gelu ? 1.5957691216 * (x + 0.044715 * x * x * x) : x;
  return x / (1 + std::exp(-z));
}

void check(const Spec& s, uint32_t seed) {
  SCOPED_TRACE(describe(s, seed));
  std::mt19937 rng(seed);
  const int64_t R = s.T * s.k, spare = 5;
  std::vector<std::vector<int32_t>> tokens(static_cast<size_t>(s.E));
  for (int64_t t = 0; t < s.T; ++t) {
    std::vector<size_t> order(static_cast<size_t>(s.E));
    std::iota(order.begin(), order.end(), 0);
    if (!s.skewed) std::shuffle(order.begin(), order.end(), rng);
    for (int64_t j = 0; j < s.k; ++j) {
      tokens[order[static_cast<size_t>(j)]].push_back(static_cast<int32_t>(t));
    }
  }
  std::vector<int32_t> token, begin = {0};
  for (const auto& own : tokens) {
    token.insert(token.end(), own.begin(), own.end());
    begin.push_back(static_cast<int32_t>(token.size()));
  }
  token.resize(static_cast<size_t>(R + spare), 0x7fffffff);
  Tensor x(DType::bf16, {s.gathers ? s.T : R + spare, s.K}), y(DType::bf16, {R + spare, s.N});
  x.normal(rng);
  if (s.nan_token >= 0) {
    std::fill_n(x.host().row(s.nan_token), 2 * s.K, kPoison);
    x.upload();
  }
  std::vector<std::unique_ptr<Tensor>> weights, biases;
  for (int i = 0; i < (s.gated ? 2 : 1); ++i) {
    weights.push_back(std::make_unique<Tensor>(s.dtype, Shape{s.E, s.N, s.K}));
    weights.back()->normal(rng, 1 / std::sqrt(static_cast<float>(s.K)));
    biases.push_back(std::make_unique<Tensor>(DType::f32, Shape{s.E, s.N}));
    biases.back()->normal(rng);
  }
  const DeviceValue<int32_t> device_token(token.data(), token.size()),
      device_begin(begin.data(), begin.size());
  ExpertProduct p{.x = x.device().data,
                  .x_stride = s.K,
                  .y = y.device().data,
                  .y_stride = s.N,
                  .begin = device_begin.get(),
                  .token = s.gathers ? device_token.get() : nullptr,
                  .gated = s.gated,
                  .gelu = s.gelu,
                  .experts = static_cast<int>(s.E),
                  .n = static_cast<int>(s.N),
                  .k = static_cast<int>(s.K),
                  .rows = R + spare,
                  .rows_of_one = s.T};
  for (size_t i = 0; i < weights.size(); ++i) {
    const TensorView w = weights[i]->device();
    p.w[i] = {.data = w.data,
              .dtype = w.dtype,
              .row_bytes = w.row_bytes,
              .bias = s.bias ? biases[i]->device().data : nullptr};
  }
  const DeviceInfo info = device_info(0);
  const ExpertDevice device = {info.compute_capability, info.num_sms};
  std::vector<ExpertConfig> configs = {choose_experts_form(expert_shape(p), device)};
  for (const int ways : {1, 2, 4, 8}) configs.push_back({.ways = ways, .ctas = 7 * ways});
  if (tiles_take(expert_shape(p), device)) {
    configs.push_back({.form = ExpertForm::tiles, .ways = 1, .ctas = info.num_sms});
    configs.push_back({.form = ExpertForm::tiles, .ways = 1, .ctas = 2});
  }
  prepare_expert_products();

  std::vector<std::vector<float>> rows[2];
  const bool plain = !is_quantized(s.dtype);
  for (size_t i = 0; i < weights.size(); ++i) {
    for (int64_t r = 0; r < s.E * s.N; ++r) rows[i].push_back(weights[i]->row(r));
  }
  std::vector<double> want(static_cast<size_t>(R * s.N)), allowed(want.size());
  for (int64_t e = 0; e < s.E; ++e) {
    for (int64_t r = begin[static_cast<size_t>(e)]; r < begin[static_cast<size_t>(e) + 1]; ++r) {
      const std::vector<float> from = x.row(s.gathers ? token[static_cast<size_t>(r)] : r);
      for (int64_t n = 0; n < s.N; ++n) {
        const auto dot = [&](size_t i) {
          Dot d;
          const std::vector<float>& w = rows[i][static_cast<size_t>(e * s.N + n)];
          for (size_t j = 0; j < w.size(); ++j) {
            d.sum += double{from[j]} * w[j];
            d.size += std::abs(double{from[j]} * w[j]);
          }
          if (s.bias) d.sum += biases[i]->row(e)[static_cast<size_t>(n)];
          // Weights that are rounded, sums in f32, scales that multiply rounded integers' sums.
          d.size *= (plain && s.dtype != DType::bf16 ? 0x1p-8 : 0) + 0x1p-16 * (plain ? 1 : 8);
          return d;
        };
        const auto at = static_cast<size_t>(r * s.N + n);
        const Dot first = dot(0);
        want[at] = first.sum;
        allowed[at] = first.size;
        if (s.gated) {
          const Dot up = dot(1);
          want[at] = act(s.gelu, first.sum) * up.sum;
          allowed[at] = 1.2 * first.size * std::abs(up.sum) +
                        std::abs(act(s.gelu, first.sum)) * up.size + 2 * first.size * up.size;
        }
        allowed[at] += 0x1p-8 * std::abs(want[at]) + 1e-6;
      }
    }
  }
  for (const ExpertConfig& config : configs) {
    SCOPED_TRACE(to_string(config));
    std::vector<std::byte> first;
    for (int run = 0; run < 2; ++run) {
      y.poison();
      expert_product(p, config, {});
      y.download();
      if (run == 0) first = y.bytes();
      ASSERT_TRUE(first == y.bytes()) << "two runs differ";
    }
    for (int64_t r = 0; r < R + spare; ++r) {
      const std::vector<float> got = y.row(r);
      const bool nan = r >= R || (s.gathers && token[static_cast<size_t>(r)] == s.nan_token) ||
                       (!s.gathers && r == s.nan_token);
      for (int64_t n = 0; n < s.N; ++n) {
        const auto at = static_cast<size_t>(r * s.N + n);
        const float g = got[static_cast<size_t>(n)];
        if (nan) {
          ASSERT_TRUE(std::isnan(g)) << "row " << r << " column " << n;
        } else {
          ASSERT_LE(std::abs(g - want[at]), allowed[at])
              << "row " << r << " column " << n << ": " << g << ", not " << want[at];
        }
      }
    }
  }
}

TEST(ExpertProduct, MatchesF64) {
  REQUIRE_DEVICE();
  uint32_t seed = std::random_device{}();
  const Spec cases[] = {
      {.T = 1, .k = 2, .E = 8, .N = 16, .K = 64, .gated = true, .gathers = true},
      {.T = 1, .k = 8, .E = 128, .N = 24, .K = 256},
      {.T = 5, .k = 3, .E = 3, .N = 33, .K = 512, .bias = true},
      {.T = 9, .k = 2, .E = 4, .N = 40, .K = 320, .gathers = true, .skewed = true},
      {.T = 31,
       .k = 1,
       .E = 6,
       .N = 8,
       .K = 128,
       .gated = true,
       .gathers = true,
       .bias = true,
       .gelu = true},
      {.T = 70, .k = 2, .E = 5, .N = 136, .K = 192, .gated = true, .gathers = true},
      {.T = 200, .k = 2, .E = 4, .N = 264, .K = 448, .skewed = true},
      {.T = 300, .k = 1, .E = 40, .N = 72, .K = 64},
  };
  for (const DType dtype :
       {DType::bf16, DType::f16, DType::f32, DType::q4_0, DType::q4_1, DType::q5_0, DType::q5_1,
        DType::q8_0, DType::q4_k, DType::q5_k, DType::q6_k}) {
    for (Spec s : cases) {
      s.dtype = dtype;
      s.K = round_up(s.K, int64_t{info(dtype).block_elems});
      check(s, ++seed);
      if (HasFatalFailure()) return;
    }
  }
}

// Rows that are no whole vectors, as of a narrow expert divided over ranks.
TEST(ExpertProduct, OddWidths) {
  REQUIRE_DEVICE();
  uint32_t seed = std::random_device{}();
  for (const DType dtype : {DType::bf16, DType::f16, DType::f32}) {
    for (const int64_t K : {1, 8, 12, 24, 40, 100}) {
      check({.T = 19, .k = 2, .E = 5, .N = 7, .K = K, .dtype = dtype}, ++seed);
      check({.T = 19,
             .k = 2,
             .E = 5,
             .N = 12,
             .K = K,
             .dtype = dtype,
             .gated = true,
             .gathers = true},
            ++seed);
      if (HasFatalFailure()) return;
    }
  }
}

TEST(ExpertProduct, ABrokenTokenSpoilsNoOther) {
  REQUIRE_DEVICE();
  uint32_t seed = std::random_device{}();
  for (const int64_t T : {int64_t{6}, int64_t{150}}) {
    check(
        {.T = T, .k = 2, .E = 4, .N = 64, .K = 128, .gated = true, .gathers = true, .nan_token = 3},
        ++seed);
    check({.T = T, .k = 2, .E = 4, .N = 64, .K = 128, .nan_token = 3}, ++seed);
    if (HasFatalFailure()) return;
  }
}

// Pairs of tiles that share weights, odd blocks of rows, and an odd count of blocks of columns.
TEST(ExpertProduct, PairsOfTiles) {
  REQUIRE_DEVICE();
  uint32_t seed = std::random_device{}();
  for (const int64_t T : {100, 129, 700}) {
    check({.T = T, .k = 1, .E = 2, .N = 328, .K = 128, .gated = true, .gathers = true}, ++seed);
    check({.T = T, .k = 2, .E = 2, .N = 520, .K = 128, .bias = true, .skewed = true}, ++seed);
    check({.T = T, .k = 1, .E = 3, .N = 120, .K = 448}, ++seed);
    if (HasFatalFailure()) return;
  }
}

TEST(ExpertProduct, NoRows) {
  REQUIRE_DEVICE();
  check({.T = 0, .k = 2, .E = 3, .N = 8, .K = 64}, 1);
}

// Each expert has all tokens, at columns of its own, as heads of latent attention have.
TEST(ExpertProduct, EachExpertHasAllTokens) {
  REQUIRE_DEVICE();
  std::mt19937 rng(7);
  const int64_t T = 45, live = 41, H = 5, N = 24, K = 40;
  Tensor x(DType::bf16, {T, H * (K + 8)}), y(DType::bf16, {T, H * N}), w(DType::bf16, {H, N, K});
  x.normal(rng);
  w.normal(rng);
  const DeviceValue<int64_t> rows(live);
  const ExpertProduct p{.x = x.device().data,
                        .x_stride = H * (K + 8),
                        .y = y.device().data,
                        .y_stride = H * N,
                        .live = rows.get(),
                        .x_step = K + 8,
                        .y_step = N,
                        .w = {{.data = w.device().data, .row_bytes = 2 * K}},
                        .experts = H,
                        .n = N,
                        .k = K,
                        .rows = T * H,
                        .rows_of_one = T};
  expert_product(p, choose_experts_form(expert_shape(p), {80, 20}), {});
  y.download();
  for (int64_t t = 0; t < T; ++t) {
    const std::vector<float> got = y.row(t), from = x.row(t);
    for (int64_t i = 0; i < H * N; ++i) {
      if (t >= live) {
        ASSERT_TRUE(std::isnan(got[static_cast<size_t>(i)]));
        continue;
      }
      const std::vector<float> row = w.row(i);
      double want = 0;
      for (int64_t j = 0; j < K; ++j) {
        want +=
            double{from[static_cast<size_t>(i / N * (K + 8) + j)]} * row[static_cast<size_t>(j)];
      }
      ASSERT_LE(std::abs(got[static_cast<size_t>(i)] - want), 0x1p-8 * std::abs(want) + 1e-3);
    }
  }
}

TEST(CudaCombine, MatchesF64InSlotOrder) {
  REQUIRE_DEVICE();
  uint32_t seed = std::random_device{}();
  std::mt19937 rng(seed);
  SCOPED_TRACE(seed);
  for (const int64_t C : {1, 7, 12, 64, 2056}) {
    for (const int64_t k : {1, 2, 8, 11}) {
      for (int form = 0; form < 3; ++form) {  // alone, with a shared expert, with its gate
        const int64_t T = 37, live = 35;
        Tensor x(DType::bf16, {T * k, C}), shared(DType::bf16, {T, C}), y(DType::bf16, {T, C});
        Tensor weight(DType::f32, {T, k}), gate(DType::f32, {T, 1});
        for (Tensor* t : {&x, &shared, &weight, &gate}) t->normal(rng);
        std::vector<int32_t> place(static_cast<size_t>(T * k));
        std::iota(place.begin(), place.end(), 0);
        std::shuffle(place.begin(), place.end(), rng);
        const DeviceValue<int32_t> places(place.data(), place.size());
        const DeviceValue<int64_t> rows(live);
        combine({.weight = weight.device().as<const float>(),
                 .place = places.get(),
                 .x = x.device(),
                 .shared = form > 0 ? shared.device() : TensorView{},
                 .gate = form > 1 ? gate.device().as<const float>() : nullptr,
                 .y = y.device(),
                 .k = static_cast<int>(k),
                 .rows = rows.get()},
                {});
        y.download();
        for (int64_t t = 0; t < T; ++t) {
          const std::vector<float> got = y.row(t);
          std::vector<double> want(static_cast<size_t>(C)), size(want.size());
          const auto add = [&](const std::vector<float>& row, double factor) {
            for (size_t c = 0; c < want.size(); ++c) {
              want[c] += factor * row[c];
              size[c] += std::abs(factor * row[c]);
            }
          };
          for (int64_t j = 0; j < k; ++j) {
            add(x.row(place[static_cast<size_t>(t * k + j)]),
                weight.row(t)[static_cast<size_t>(j)]);
          }
          if (form > 0)
            add(shared.row(t), form > 1 ? 1 / (1 + std::exp(-double{gate.row(t)[0]})) : 1);
          for (size_t c = 0; c < want.size(); ++c) {
            if (t >= live) {
              ASSERT_TRUE(std::isnan(got[c]));
            } else {
              ASSERT_LE(std::abs(got[c] - want[c]), 0x1p-8 * std::abs(want[c]) + 0x1p-20 * size[c]);
            }
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace braid::cuda::test
