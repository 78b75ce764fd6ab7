// Prompts with products divided over GPUs that have whole weights, as `--sp auto` takes them: views
// of the weights, and keys wherever they lie, give what one GPU gives.
#include <gtest/gtest.h>

#include <optional>
#include <utility>

#include "braid/engine/loaded_model.h"
#include "golden/support/forward.h"
#include "golden/support/golden.h"
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

INSTANTIATE_TEST_SUITE_P(
    Models, CudaDividedPrompt,
    testing::ValuesIn(random_models_without({"num_experts", "num_local_experts", "n_routed_experts",
                                             "kv_lora_rank"})),
    [](const auto& info) { return info.param; });

}  // namespace
}  // namespace braid::golden
