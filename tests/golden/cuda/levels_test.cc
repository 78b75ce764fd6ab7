// Level attention of ranks that have all of a prompt's tokens, on GPUs: with all keys it is dense
// attention, and with fewer it comes nearer to the f64 golden of these sets than dense attention.
#include <gtest/gtest.h>

#include "braid/engine/loaded_model.h"
#include "golden/support/forward.h"
#include "golden/support/level_golden.h"
#include "golden/support/rounding.h"

namespace braid::golden {
namespace {

class CudaLevels : public testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    if (const char* why = cannot_run(GetParam())) GTEST_SKIP() << why;
    folder_.emplace(fmt::format("cuda_levels_{}", GetParam()));
    levels_.write(folder_->path());
    loaded_.emplace(folder_->path().string());
  }
  RunnerConfig config(std::vector<double> keep, std::vector<int> groups) const {
    RunnerConfig c = cuda_runner(GetParam());
    c.thinning = {.keep = std::move(keep), .groups = std::move(groups)};
    return c;
  }
  Rows logits(const RunnerConfig& config, const std::vector<int32_t>& prompt, size_t chunk) const {
    Runner runner(loaded_->model, config);
    return prompt_logits(runner, prompt, chunk);
  }

  const LevelGolden levels_ = load_level_golden();
  std::optional<Folder> folder_;
  std::optional<LoadedModel> loaded_;
};

TEST_P(CudaLevels, AllKeysAreDense) {
  const Golden golden{.columns = levels_.columns, .cases = {levels_.cases[1].logits}};
  const double tolerance = tolerance_of(loaded_->model, golden);
  const std::vector<int32_t>& prompt = golden.cases[0].prompt;
  for (size_t chunk : {prompt.size(), size_t{100}}) {
    const Rows dense = logits(cuda_runner(GetParam()), prompt, chunk);
    for (int ranks : {2, 8, 16}) {
      const Rows all = logits(config({1}, {ranks}), prompt, chunk);
      ASSERT_EQ(all.size(), dense.size());
      for (size_t i = 0; i < all.size(); ++i) {
        ASSERT_LT(relative_distance(all[i], dense[i]), tolerance)
            << ranks << " ranks, chunks of " << chunk << ", row " << i;
      }
    }
  }
}

TEST_P(CudaLevels, FewerKeysAreTheGoldens) {
  for (const LevelGoldenCase& c : levels_.cases) {
    if (c.options.at("importance") == "previous" || c.options.value("drop_queries", false))
      continue;
    SCOPED_TRACE(c.options.dump());
    const Golden golden{.columns = levels_.columns, .cases = {c.logits}};
    RunnerConfig thins = config(c.options.at("keep"), c.options.at("groups"));
    thins.thinning.importance = parse_importance(c.options.at("importance").get<std::string>());
    Runner runner(loaded_->model, thins);
    const size_t n = c.logits.prompt.size();
    const Distance thinned =
        distance_of(golden, c.logits, prompt_logits(runner, c.logits.prompt, n));
    const Distance dense =
        distance_of(golden, c.logits, logits(cuda_runner(GetParam()), c.logits.prompt, n));
    EXPECT_LT(thinned.inner, dense.inner);
    EXPECT_LT(thinned.last, dense.last);
    EXPECT_TRUE(runner.approximation());
    std::printf("%d GPUs, %s: inner %.4f, last %.4f; dense %.4f, %.4f\n", GetParam(),
                c.options.dump().c_str(), thinned.inner, thinned.last, dense.inner, dense.last);
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, CudaLevels, testing::Values(1, 3),
                         [](const auto& info) { return fmt::format("{}", info.param); });

TEST(CudaLevelsRefused, WhatGpusDoNotHave) {
  if (const char* why = cannot_run(1)) GTEST_SKIP() << why;
  const LevelGolden levels = load_level_golden();
  const Folder folder("cuda_levels_refused");
  levels.write(folder.path());
  const LoadedModel loaded(folder.path().string());
  const auto refusal = [&](Thinning thinning) -> std::string {
    RunnerConfig c = cuda_runner();
    c.thinning = std::move(thinning);
    try {
      Runner runner(loaded.model, c);
      prompt_logits(runner, levels.cases[1].logits.prompt, 512);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  const auto has = [](const std::string& text, std::string_view part) {
    return text.find(part) < text.size();
  };
  EXPECT_TRUE(has(refusal({.keep = {0.5}, .importance = Importance::previous}),
                  "GPUs have neither --importance previous nor --drop-queries"));
  EXPECT_TRUE(has(refusal({.keep = {0.5}, .drop_queries = true}), "nor --drop-queries"));
  EXPECT_TRUE(has(refusal({.keep = {0.5}, .groups = {17}}), "--levels of 16 ranks at most"));
}

}  // namespace
}  // namespace braid::golden
