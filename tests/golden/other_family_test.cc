// Weights of other names and norms over all heads: ranks give what one gives.
#include "golden/support/other_family.h"

#include <gtest/gtest.h>

#include <cmath>

#include "braid/engine/runner.h"
#include "braid/schedule/strategies/registry.h"

namespace braid::golden {
namespace {

constexpr int64_t kPageSize = 16;
constexpr int64_t kPagesEach = 8;

// Logits of two sequences: a prompt each, of which one is in chunks, then steps of both.
std::vector<float> logits(const Model& model, int tp, const std::string& schedule) {
  Runner runner(model, {.tp = tp,
                        .sp = {},
                        .cache = {.pages = 2 * kPagesEach,
                                  .page_size = kPageSize,
                                  .pages_per_sequence = kPagesEach,
                                  .kv_dtype = DType::f32},
                        .schedule = schedule});
  std::vector<float> all;
  std::vector<int64_t> cached(2, 0);
  const std::vector<std::vector<int64_t>> steps = {{37, 0}, {1, 33}, {66, 71}, {1, 1}, {1, 0}};
  Batch batch(kPageSize);
  for (const auto& step : steps) {
    batch.clear();
    for (size_t s = 0; s < step.size(); ++s) {
      if (step[s] == 0) continue;
      std::vector<int32_t> tokens, pages;
      for (int64_t i = 0; i < step[s]; ++i) {
        tokens.push_back(static_cast<int32_t>(
            (static_cast<int64_t>(s) * 31 + (cached[s] + i) * 17) % model.config().V));
      }
      for (int64_t p = 0; p < kPagesEach; ++p) {
        pages.push_back(static_cast<int32_t>(p * 2 + static_cast<int64_t>(s)));
      }
      batch.add(tokens, cached[s], pages, step[s]);
      cached[s] += step[s];
    }
    const TensorView out = runner.run(batch);
    all.insert(all.end(), out.as<float>(), out.as<float>() + out.shape.elems());
  }
  return all;
}

TEST(OtherFamily, RanksGiveTheLogitsOfOne) {
  const Model model(other_shape(DType::f32), 11);
  EXPECT_EQ(model.default_kv_dtype(), DType::f32);
  EXPECT_EQ(Model(other_shape(DType::bf16), 11).default_kv_dtype(), DType::bf16);
  const std::vector<float> expected = logits(model, 1, "sequential");
  double squares = 0;
  for (const double x : expected) squares += x * x;
  const double spread = std::sqrt(squares / static_cast<double>(expected.size()));
  ASSERT_GT(spread, 0);
  // As in strategies_test.cc: products are added in another order, F of them at most.
  const double sums = (6.0 * static_cast<double>(model.config().layers)) + 1;
  const double tolerance = 6 * 0x1p-24 * std::sqrt(2 * sums * 130) * spread;
  for (int tp = 2; tp <= 4; ++tp) {
    for (const std::string& schedule : strategy_names()) {
      SCOPED_TRACE(fmt::format("{} on {} ranks", schedule, tp));
      const std::vector<float> got = logits(model, tp, schedule);
      ASSERT_EQ(got.size(), expected.size());
      double worst = 0;
      for (size_t i = 0; i < got.size(); ++i) {
        worst = std::max(worst, std::abs(static_cast<double>(got[i]) - expected[i]));
      }
      EXPECT_LE(worst, tolerance);
      RecordProperty(fmt::format("{}_tp{}", schedule, tp),
                     fmt::format("{} of {}", worst, tolerance));
    }
  }
}

}  // namespace
}  // namespace braid::golden
