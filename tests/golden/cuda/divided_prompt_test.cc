// Prompts with products divided over GPUs that have whole weights, as `--sp auto` takes them: views
// of the weights, and keys wherever they lie, give what one GPU gives.
#include <gtest/gtest.h>

#include <optional>
#include <utility>

#include "braid/engine/loaded_model.h"
#include "golden/support/forward.h"
#include "golden/support/golden.h"
#include "golden/support/level_rounding.h"
#include "golden/support/random_model.h"
#include "golden/support/rounding.h"

namespace braid::golden {
namespace {

class CudaDividedPrompt : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (const char* why = cannot_run(2)) GTEST_SKIP() << why;
    folder_.emplace(GetParam() + "_divided_prompt");
    write_hf_folder(load_random_model(GetParam()), folder_->path());
    loaded_.emplace(folder_->path().string());
    golden_ = load_golden(GetParam());
  }

  // Reading weights costs most of the time, so that divided weights are fastest.
  static RunnerConfig config(int ranks) {
    RunnerConfig c = cuda_runner(ranks);
    c.sp = SequenceParallel{};
    c.schedule = "sequence_parallel";
    c.profile = load_profile("h200");
    c.profile->memory_bytes_per_second = c.profile->total_memory_bytes_per_second = 1e6;
    c.profile->launch_seconds = 5e-3;
    c.profile->rates.clear();
    return c;
  }

  std::optional<Folder> folder_;
  std::optional<LoadedModel> loaded_;
  Golden golden_;
};

// In caches with room for all keys on each GPU, and in caches of a rank's own keys; keys move
// beside the computation, or in order, as of ranks that share a GPU.
TEST_P(CudaDividedPrompt, LogitsAreThoseOfOneGpu) {
  const double tolerance = tolerance_of(loaded_->model, golden_);
  Runner one(loaded_->model, cuda_runner());
  for (int P : {2, 4}) {
    if (cannot_run(P)) continue;
    for (const auto& [apart, schedule] : {std::pair(false, "sequence_parallel"),
                                          {true, "sequence_parallel"},
                                          {false, "sequential"},
                                          {true, "sequential"}}) {
      SCOPED_TRACE(fmt::format("{} GPUs, keys {}, {}", P, apart ? "apart" : "together", schedule));
      RunnerConfig c = config(P);
      c.schedule = schedule;
      c.sp->apart = apart;
      if (apart) c.cache.pages = c.cache.pages_per_sequence = int64_t{1} << 14;
      Runner ranks(loaded_->model, c);
      for (const Case& example : golden_.cases) {
        for (size_t chunk : {512, 7}) {
          const Rows rows = prompt_logits(ranks, example.prompt, chunk);
          const Rows want = prompt_logits(one, example.prompt, chunk);
          ASSERT_EQ(rows.size(), want.size());
          for (size_t t = 0; t < rows.size(); ++t) {
            ASSERT_LT(relative_distance(rows[t], want[t]), tolerance) << "token " << t;
          }
        }
      }
      // Longer prompts of these narrow models may be faster by divided tokens, as are all lengths
      // over four GPUs where products' sums are not hidden.
      if (P == 4 && schedule == std::string_view("sequential")) continue;
      bool taken = false, divisible = false;
      for (const std::string& line : ranks.explain()) {
        const auto has = [&](std::string_view text) { return line.find(text) < line.size(); };
        if (!line.starts_with("prompt of ") || !has("behind 0:") || has("query heads")) continue;
        divisible = true;
        taken = taken || has(": weights divided");
      }
      EXPECT_EQ(taken, divisible);
    }
  }
}

double distance(const Rows& a, const Rows& b) {
  std::vector<float> all, other;
  for (const std::vector<float>& row : a) all.insert(all.end(), row.begin(), row.end());
  for (const std::vector<float>& row : b) other.insert(other.end(), row.begin(), row.end());
  return relative_distance(all, other);
}

// Each rank thins the keys of its own heads. The logits of a thinned f32 run on a CPU are the
// measure: the GPUs' logits are as near to it as scalar references that round to bf16, and logits
// of dense attention are farther.
TEST_P(CudaDividedPrompt, ThinnedLogitsAreNearThoseInF32) {
  const Model& model = loaded_->model;
  if (model.config().layers < 3 || each_layer_has_a_window(model.config())) {
    GTEST_SKIP() << "no layer leaves keys out";
  }
  constexpr int64_t kTokens = 190, kBehind = 5;
  std::vector<int32_t> prompt(kTokens + kBehind);
  for (size_t i = 0; i < prompt.size(); ++i) prompt[i] = 5 + static_cast<int32_t>(i * 37 % 241);
  const std::vector<int32_t> thinned(prompt.begin(), prompt.begin() + kTokens);
  RunnerConfig cpu = cuda_runner();
  cpu.device = {};
  cpu.cache.kv_dtype = cpu.cache.activations = DType::f32;
  Runner exact(model, cuda_runner());
  const Rows dense = prompt_logits(exact, prompt, kTokens);
  int tried = 0;
  for (const auto& [P, importance, apart, schedule] :
       {std::tuple(2, Importance::own, false, "sequence_parallel"),
        {2, Importance::own, true, "sequential"},
        {2, Importance::previous, false, "sequential"},
        {2, Importance::probe, true, "sequence_parallel"},
        {3, Importance::own, true, "sequence_parallel"}}) {
    if (model.config().Hkv % P != 0 || cannot_run(P)) continue;  // a KV head is on a rank alone
    SCOPED_TRACE(fmt::format("{} GPUs, {}, keys {}, {}", P, to_string(importance),
                             apart ? "apart" : "together", schedule));
    ++tried;
    RunnerConfig c = config(P);
    c.schedule = schedule;
    c.sp->apart = apart;
    if (apart) c.cache.pages = c.cache.pages_per_sequence = int64_t{1} << 14;
    c.profile->pull_seconds = 1;  // rings are slow
    c.thinning = cpu.thinning = {.keep = {0.3}, .groups = {P}, .importance = importance};
    Runner f32(model, cpu), ranks(model, c);
    const Rows want = prompt_logits(f32, prompt, kTokens);
    const Rows rounded = rounded_thinned_logits(model, c.thinning, thinned);
    const Rows got = prompt_logits(ranks, prompt, kTokens);
    ASSERT_EQ(got.size(), want.size());
    const double bound = kDraws * distance(rounded, Rows(want.begin(), want.begin() + kTokens));
    EXPECT_LT(distance(got, want), bound);
    EXPECT_GT(distance(dense, want), bound) << "the bound tells nothing";
    ASSERT_TRUE(ranks.approximation() && f32.approximation());
    EXPECT_EQ(ranks.approximation()->shares.pair_share(), f32.approximation()->shares.pair_share());
    const auto divides = [](const std::string& line) {
      return line.starts_with("prompt of ") && line.find("behind 0: weights divided") < line.size();
    };
    EXPECT_TRUE(std::ranges::any_of(ranks.explain(), divides))
        << fmt::format("{}", fmt::join(ranks.explain(), "\n"));
    const Rows last(got.end() - kBehind, got.end()), wanted(want.end() - kBehind, want.end());
    fmt::print("{}, {} GPUs, {}: {:.4f} of {:.4f}, behind the prompt {:.4f}; dense {:.4f}\n",
               GetParam(), P, to_string(importance), distance(got, want), bound,
               distance(last, wanted), distance(dense, want));
  }
  if (tried == 0) GTEST_SKIP() << "ranks would share the KV head";
}

INSTANTIATE_TEST_SUITE_P(
    Models, CudaDividedPrompt,
    testing::ValuesIn(random_models_without({"num_experts", "num_local_experts", "n_routed_experts",
                                             "kv_lora_rank"})),
    [](const auto& info) { return info.param; });

}  // namespace
}  // namespace braid::golden
