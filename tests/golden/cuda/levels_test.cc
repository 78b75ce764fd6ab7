// Level attention of a model on GPUs: with all keys it is dense attention, and with fewer it is as
// near to the golden of these sets as rounding to bf16 lets it.
#include <gtest/gtest.h>

#include "braid/engine/loaded_model.h"
#include "golden/support/forward.h"
#include "golden/support/level_golden.h"
#include "golden/support/level_rounding.h"

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
  const std::vector<int32_t>& prompt = levels_.cases[1].logits.prompt;
  const double tolerance = dense_tolerance(loaded_->model, prompt);
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

// With fewer keys, ranks are as near to the golden as scalar references that round as GPUs do, and
// choose keys by rounded scores; dense attention is not. The last row alone hangs on single keys.
void expect_golden(const Model& model, const LevelGolden& levels, const LevelGoldenCase& c,
                   RunnerConfig ranks) {
  SCOPED_TRACE(c.options.dump());
  const Golden golden{.columns = levels.columns, .cases = {c.logits}};
  const size_t n = c.logits.prompt.size();
  const auto distance = [&](Runner& runner) {
    return distance_of(golden, c.logits, prompt_logits(runner, c.logits.prompt, n));
  };
  Runner exact(model, ranks);
  ranks.thinning = {.keep = c.options.at("keep"),
                    .groups = c.options.at("groups"),
                    .importance = parse_importance(c.options.at("importance").get<std::string>()),
                    .drop_queries = c.options.value("drop_queries", false)};
  Runner thins(model, ranks);
  const Distance thinned = distance(thins), dense = distance(exact);
  const Distance rounded =
      distance_of(golden, c.logits, rounded_thinned_logits(model, ranks.thinning, c.logits.prompt));
  // Dropped queries lose all far keys or none where rounding turns their place: one draw of the
  // references says little.
  const double bound = ranks.thinning.drop_queries ? dense.inner / 3 : kDraws * rounded.inner;
  EXPECT_LT(thinned.inner, bound);
  EXPECT_GT(dense.inner, bound) << "the bound tells nothing";
  EXPECT_LT(thinned.last, dense.last);
  EXPECT_TRUE(thins.approximation());
  std::printf("%s, %d GPUs%s, %s: inner %.4f of %.4f, last %.4f; dense %.4f, %.4f\n",
              levels.model.c_str(), ranks.tp, ranks.sp ? " in a ring" : "",
              c.options.dump().c_str(), thinned.inner, bound, thinned.last, dense.inner,
              dense.last);
}

TEST_P(CudaLevels, FewerKeysAreTheGoldens) {
  for (const LevelGoldenCase& c : levels_.cases) {
    expect_golden(loaded_->model, levels_, c, cuda_runner(GetParam()));
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, CudaLevels, testing::Values(1, 3),
                         [](const auto& info) { return fmt::format("{}", info.param); });

// Ranks that divide the tokens, and perhaps share GPUs.
TEST(CudaLevelRings, FewerKeysAreTheGoldens) {
  const LevelGolden levels = load_level_golden();
  const Folder folder("cuda_level_rings");
  levels.write(folder.path());
  const LoadedModel loaded(folder.path().string());
  for (const LevelGoldenCase& c : levels.cases) {
    const int P = c.options.at("ranks");
    if (const char* why = cannot_run(P)) GTEST_SKIP() << why;
    for (int machines = 1; machines <= 2 && P % machines == 0; ++machines) {
      RunnerConfig ring = cuda_runner(P);
      ring.sp = SequenceParallel{.mode = SpMode::ring};
      ring.schedule = "sequence_parallel";
      ring.links.machines = machines;
      expect_golden(loaded.model, levels, c, ring);
    }
  }
}

// Queries with biases, norms or other rotations, experts, one KV head: a rank alone, and a ring.
TEST(CudaLevelFamilies, FewerKeysAreThoseOfEagerAttentionWithTheMasks) {
  if (const char* why = cannot_run(1)) GTEST_SKIP() << why;
  for (const LevelGolden& golden : load_eager_level_goldens()) {
    const Folder folder("cuda_level_families_" + golden.model);
    golden.write(folder.path());
    const Model model(folder.path().string());
    for (const LevelGoldenCase& c : golden.cases) {
      expect_golden(model, golden, c, cuda_runner());
      RunnerConfig ring = cuda_runner(c.options.at("ranks"));
      if (cannot_run(ring.tp)) continue;
      ring.sp = SequenceParallel{.mode = SpMode::ring};
      ring.schedule = "sequence_parallel";
      expect_golden(model, golden, c, ring);
    }
  }
}

TEST(CudaLevelsRefused, MoreLevelsThanGpusTake) {
  if (const char* why = cannot_run(1)) GTEST_SKIP() << why;
  const LevelGolden levels = load_level_golden();
  const Folder folder("cuda_levels_refused");
  levels.write(folder.path());
  const LoadedModel loaded(folder.path().string());
  RunnerConfig c = cuda_runner();
  c.thinning = {.keep = {0.5}, .groups = {17}};
  try {
    Runner runner(loaded.model, c);
    prompt_logits(runner, levels.cases[1].logits.prompt, 512);
    FAIL() << "no error";
  } catch (const Error& error) {
    const std::string what = error.what();
    EXPECT_LT(what.find("--levels of 16 ranks at most"), what.size()) << what;
  }
}

}  // namespace
}  // namespace braid::golden
