// Prompts on the first GPUs of several, as `--sp auto` takes them where further GPUs cost more:
// logits are one GPU's, with keys together or apart.
#include <gtest/gtest.h>

#include <optional>

#include "braid/engine/loaded_model.h"
#include "braid/engine/sequence_ranks.h"
#include "golden/support/forward.h"
#include "golden/support/golden.h"
#include "golden/support/random_model.h"
#include "golden/support/rounding.h"
#include "golden/support/slow_machines.h"

namespace braid::golden {
namespace {

class CudaPartsOfRanks : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (const char* why = cannot_run(4)) GTEST_SKIP() << why;
    folder_.emplace(GetParam() + "_parts_of_ranks");
    write_hf_folder(load_random_model(GetParam()), folder_->path());
    loaded_.emplace(folder_->path().string());
    golden_ = load_golden(GetParam());
  }

  std::optional<Folder> folder_;
  std::optional<LoadedModel> loaded_;
  Golden golden_;
};

TEST_P(CudaPartsOfRanks, LogitsAreThoseOfOneGpu) {
  const double tolerance = tolerance_of(loaded_->model, golden_);
  Runner one(loaded_->model, cuda_runner());
  for (bool apart : {false, true}) {
    SCOPED_TRACE(apart ? "keys apart" : "keys together");
    RunnerConfig c = cuda_runner(4);
    c.sp = SequenceParallel{};
    c.links.machines = 2;
    c.schedule = "sequence_parallel";
    c.profile = slow_machines(DType::bf16);
    if (apart) c.cache.pages = c.cache.pages_per_sequence = 2 * kSlotsOfOneGpu / kPageSize;
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
    expect_two_ranks(ranks.explain());
  }
}

INSTANTIATE_TEST_SUITE_P(Models, CudaPartsOfRanks,
                         testing::Values("llama2_mha", "mistral_window", "qwen3_qk_norm"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace braid::golden
