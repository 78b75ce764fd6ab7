// Prompts on the first GPUs of several, as `--sp auto` takes them where further GPUs cost more:
// logits are one GPU's, with keys together or apart, and decoding goes on with these keys.
#include <gtest/gtest.h>

#include <optional>

#include "braid/engine/generate.h"
#include "braid/engine/loaded_model.h"
#include "golden/support/expect_greedy.h"
#include "golden/support/forward.h"
#include "golden/support/golden.h"
#include "golden/support/random_model.h"
#include "golden/support/rounding.h"
#include "golden/support/slow_machines.h"

namespace braid::golden {
namespace {

// The rows of golden prompts, in one step and in several, and again.
void expect_rows(Runner& ranks, Runner& one, const Golden& golden, double tolerance) {
  for (const Case& example : golden.cases) {
    for (size_t chunk : {512, 7}) {
      SCOPED_TRACE(fmt::format("{} tokens in steps of {}", example.prompt.size(), chunk));
      const Rows rows = prompt_logits(ranks, example.prompt, chunk);
      const Rows want = prompt_logits(one, example.prompt, chunk);
      ASSERT_EQ(rows.size(), want.size());
      for (size_t t = 0; t < rows.size(); ++t) {
        ASSERT_LT(relative_distance(rows[t], want[t]), tolerance) << "token " << t;
      }
      EXPECT_TRUE(prompt_logits(ranks, example.prompt, chunk) == rows) << "the same again";
    }
  }
}

class CudaPartsOfRanks : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (const char* why = cannot_run(4)) GTEST_SKIP() << why;
    folder_.emplace(GetParam() + "_parts_of_ranks");
    write_hf_folder(load_random_model(GetParam()), folder_->path());
    loaded_.emplace(folder_->path().string());
    golden_ = load_golden(GetParam());
    tolerance_ = tolerance_of(loaded_->model, golden_);
  }
  void expect_rows_of_one(Runner& ranks, Runner& one) {
    expect_rows(ranks, one, golden_, tolerance_);
  }

  std::optional<Folder> folder_;
  std::optional<LoadedModel> loaded_;
  Golden golden_;
  double tolerance_ = 0;
};

TEST_P(CudaPartsOfRanks, LogitsAreThoseOfOneGpu) {
  Runner one(loaded_->model, cuda_runner());
  for (bool apart : {false, true}) {
    for (const char* schedule : {"sequence_parallel", "auto"}) {
      SCOPED_TRACE(fmt::format("keys {}, {}", apart ? "apart" : "together", schedule));
      RunnerConfig c = cuda_runner(4);
      c.sp = SequenceParallel{};
      c.links.machines = 2;
      c.schedule = schedule;
      c.profile = slow_machines(DType::bf16);
      c.sp->apart = apart;
      if (apart) c.cache.pages = c.cache.pages_per_sequence = int64_t{1} << 14;
      Runner ranks(loaded_->model, c);
      expect_rows_of_one(ranks, one);
      if (HasFatalFailure()) return;
      expect_two_ranks(ranks.explain());
    }
  }
}

// The keys come to the first GPU, and the loop runs there.
TEST_P(CudaPartsOfRanks, GreedyTokensAreThoseOfOneGpu) {
  Generator generator(loaded_->model, loaded_->tokenizer,
                      {.device = gpus_for(4),
                       .tp = 4,
                       .sp = SequenceParallel{},
                       .threads = 1,
                       .links = {.machines = 2},
                       .profile = slow_machines(DType::bf16)});
  for (const Case& c : golden_.cases) {
    expect_greedy(generator, c, tolerance_);
    if (HasFatalFailure()) return;
  }
}

// Three GPUs have a ring of two, five GPUs have rings of two and of three.
TEST(CudaUnevenPartsOfRanks, LogitsAreThoseOfOneGpu) {
  if (const char* why = cannot_run(3)) GTEST_SKIP() << why;
  Folder folder("cuda_uneven_parts");
  write_hf_folder(load_random_model("llama_yarn"), folder.path());
  const LoadedModel loaded(folder.path().string());
  const Golden golden = load_golden("llama_yarn");
  const double tolerance = tolerance_of(loaded.model, golden);
  Runner one(loaded.model, cuda_runner());
  for (int P : {3, 5}) {
    if (cannot_run(P)) continue;
    for (bool apart : {false, true}) {
      SCOPED_TRACE(fmt::format("{} GPUs, keys {}", P, apart ? "apart" : "together"));
      RunnerConfig c = cuda_runner(P);
      c.sp = SequenceParallel{};
      c.schedule = "sequence_parallel";
      c.profile = slow_peers(DType::bf16);
      c.sp->apart = apart;
      if (apart) c.cache.pages = c.cache.pages_per_sequence = int64_t{1} << 14;
      Runner ranks(loaded.model, c);
      expect_rows(ranks, one, golden, tolerance);
      if (testing::Test::HasFatalFailure()) return;
      expect_uneven_parts(ranks.explain(), P);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, CudaPartsOfRanks,
                         testing::Values("llama2_mha", "mistral_window", "qwen3_qk_norm"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace braid::golden
