// The device's choices against ops::choose_experts and what rows must look like.
#include "braid/kernels/cuda/experts/device/route.h"

#include <algorithm>

#include "backend/cuda/pointwise/tensor.h"

namespace braid::cuda::test {
namespace {

struct Spec {
  int64_t T = 1, live = 1, E = 8;
  ops::RouteAttrs attrs;
  bool bias = false;
  int nans = 0;  // of each token's logits
};

std::string describe(const Spec& s, uint32_t seed) {
  return fmt::format(
      "{} of {} tokens, {} experts, k {}, {} {} groups {} of {} {}, bias {}, NaN {}, seed {}",
      s.live, s.T, s.E, s.attrs.top_k, to_string(s.attrs.score), to_string(s.attrs.weight),
      s.attrs.kept_groups, s.attrs.groups, to_string(s.attrs.group_score), s.bias, s.nans, seed);
}

// Of scores that differ by less the device may choose either: a few units in the last place of
// exponentials, and of their sum with a bias.
constexpr double kBound = 2e-6;

void check(const Spec& s, uint32_t seed) {
  SCOPED_TRACE(describe(s, seed));
  std::mt19937 rng(seed);
  const int64_t k = s.attrs.top_k, R = s.T * k;
  const auto n = static_cast<size_t>(s.T * s.E);
  // Of 1/8 each, so that many are equal.
  std::vector<float> logits(n, NAN), bias(static_cast<size_t>(s.E));
  std::normal_distribution<float> normal(0, 2);
  for (size_t i = 0; i < static_cast<size_t>(s.live * s.E); ++i) {
    logits[i] = std::round(normal(rng) * 8) / 8;
  }
  for (int64_t t = 0; t < s.live; ++t) {
    for (int i = 0; i < s.nans; ++i) {
      logits[static_cast<size_t>(t * s.E) + rng() % static_cast<uint32_t>(s.E)] = NAN;
    }
  }
  for (float& b : bias) b = 7 + std::round(normal(rng) * 4) / 64;
  const DeviceValue<float> device_logits(logits.data(), n), device_bias(bias.data(), bias.size());
  const DeviceValue<int64_t> live(s.live);
  const std::vector<float> poison(static_cast<size_t>(R + s.E + 1), NAN);
  std::vector<float> weight(static_cast<size_t>(R));
  std::vector<int32_t> place(weight.size()), token(weight.size()),
      begin(static_cast<size_t>(s.E) + 1);
  std::vector<std::vector<int32_t>> first;
  for (int run = 0; run < 3; ++run) {
    const auto poisoned = [&](size_t count) { return DeviceValue<float>(poison.data(), count); };
    const auto w = poisoned(weight.size()), p = poisoned(place.size()), t = poisoned(token.size()),
               b = poisoned(begin.size()), chosen = poisoned(place.size());
    const DeviceValue<int64_t> rows(-1);
    const auto ints = [](const DeviceValue<float>& v) {
      return reinterpret_cast<int32_t*>(v.get());
    };
    route({.attrs = s.attrs,
           .logits = device_logits.get(),
           .bias = s.bias ? device_bias.get() : nullptr,
           .weight = w.get(),
           .place = ints(p),
           .token = ints(t),
           .begin = ints(b),
           .chosen = ints(chosen),
           .tokens = live.get(),
           .expert_rows = rows.get(),
           .T = static_cast<int>(s.T),
           .E = static_cast<int>(s.E)},
          {});
    const auto fetch = [](auto& to, const void* from) {
      check_cuda(cudaMemcpy(to.data(), from, to.size() * 4, cudaMemcpyDeviceToHost), "test");
    };
    fetch(weight, w.get());
    fetch(place, p.get());
    fetch(token, t.get());
    fetch(begin, b.get());
    int64_t extent = 0;
    check_cuda(cudaMemcpy(&extent, rows.get(), 8, cudaMemcpyDeviceToHost), "test");
    ASSERT_EQ(extent, s.live * k);
    std::vector<int32_t> bits(weight.size());
    std::memcpy(bits.data(), weight.data(), bits.size() * 4);
    const std::vector<std::vector<int32_t>> all = {bits, place, token, begin};
    if (run == 0) first = all;
    ASSERT_TRUE(all == first) << "two runs differ";
  }
  // Rows lie by expert, then by token, and each is some choice's.
  ASSERT_EQ(begin[0], 0);
  ASSERT_EQ(begin.back(), s.live * k);
  std::vector<int> used(static_cast<size_t>(s.live * k));
  for (size_t e = 0; e + 1 < begin.size(); ++e) {
    ASSERT_LE(begin[e], begin[e + 1]);
    for (int32_t r = begin[e] + 1; r < begin[e + 1]; ++r) {
      ASSERT_LT(token[static_cast<size_t>(r) - 1], token[static_cast<size_t>(r)]);
    }
  }
  std::vector<int32_t> expert(static_cast<size_t>(k));
  std::vector<float> want(static_cast<size_t>(k));
  for (int64_t t = 0; t < s.live; ++t) {
    const std::span<const float> own(&logits[static_cast<size_t>(t * s.E)],
                                     static_cast<size_t>(s.E));
    ops::choose_experts(s.attrs, own, s.bias ? bias.data() : nullptr, expert.data(), want.data());
    for (int64_t j = 0; j < k; ++j) {
      const auto at = static_cast<size_t>(t * k + j);
      ASSERT_GE(place[at], 0);
      ASSERT_LT(place[at], s.live * k);
      ASSERT_EQ(token[static_cast<size_t>(place[at])], t);
      ASSERT_EQ(used[static_cast<size_t>(place[at])]++, 0);
      const auto e = std::ranges::upper_bound(begin, place[at]) - begin.begin() - 1;
      if (e != expert[static_cast<size_t>(j)]) {
        // Neither is NaN: a choice among equals is by index, and only sums with a bias are near.
        ASSERT_TRUE(s.bias) << "token " << t << " choice " << j;
        const auto score = [&](int64_t i) {
          return 1 / (1 + std::exp(-double{own[static_cast<size_t>(i)]})) +
                 double{bias[static_cast<size_t>(i)]};
        };
        ASSERT_LT(std::abs(score(e) - score(expert[static_cast<size_t>(j)])), kBound);
        break;
      }
      const float w = want[static_cast<size_t>(j)];
      ASSERT_LE(std::abs(weight[at] - w), 1e-5 * std::abs(w) + 1e-12) << "token " << t;
    }
  }
  for (size_t i = static_cast<size_t>(s.live * k); i < weight.size(); ++i) {
    ASSERT_TRUE(std::isnan(weight[i])) << "a dead token's weight was written";
    uint32_t bits = 0;
    std::memcpy(&bits, &place[i], 4);
    ASSERT_EQ(bits, 0x7fc00000u) << "a dead token's place was written";
  }
}

TEST(CudaRoute, ChoosesAsTheReference) {
  REQUIRE_DEVICE();
  using W = ops::RouteWeight;
  using G = ops::GroupScore;
  const ops::RouteAttrs mixtral = {.top_k = 2}, qwen = {.top_k = 8, .weight = W::score};
  const ops::RouteAttrs v2 = {
      .top_k = 6, .weight = W::score, .scale = 16, .groups = 8, .kept_groups = 3};
  const ops::RouteAttrs v3 = {.top_k = 8,
                              .score = ops::RouteScore::sigmoid,
                              .scale = 2.5f,
                              .groups = 8,
                              .kept_groups = 4,
                              .group_score = G::two_best};
  const ops::RouteAttrs logits = {.top_k = 4, .score = ops::RouteScore::raw, .weight = W::softmax};
  const Spec forms[] = {{.E = 8, .attrs = mixtral},
                        {.E = 128, .attrs = qwen},
                        {.E = 160, .attrs = v2},
                        {.E = 256, .attrs = v3, .bias = true},
                        {.E = 32, .attrs = logits},
                        {.E = 5, .attrs = {.top_k = 5}},
                        {.E = 1, .attrs = {.top_k = 1}},
                        {.E = 1024, .attrs = {.top_k = 40, .groups = 1024, .kept_groups = 40}},
                        {.E = 600, .attrs = {.top_k = 3}}};
  uint32_t seed = std::random_device{}();
  for (Spec s : forms) {
    for (const auto& [T, live] : {std::pair<int64_t, int64_t>{1, 1},
                                  {3, 2},
                                  {17, 17},
                                  {64, 63},
                                  {65, 0},
                                  {300, 299},
                                  {4096, 4096}}) {
      if (T * s.E > 1 << 20) continue;
      s.T = T, s.live = live;
      check(s, ++seed);
      if (HasFatalFailure()) return;
    }
  }
}

TEST(CudaRoute, ALogitThatIsNoNumberIsTheLowest) {
  REQUIRE_DEVICE();
  uint32_t seed = std::random_device{}();
  for (const int nans : {1, 9, 200}) {
    for (const int64_t T : {int64_t{7}, int64_t{90}}) {
      check({.T = T, .live = T, .E = 16, .attrs = {.top_k = 4}, .nans = nans}, ++seed);
      if (HasFatalFailure()) return;
    }
  }
}

}  // namespace
}  // namespace braid::cuda::test
