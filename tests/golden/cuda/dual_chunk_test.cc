// Dual chunk attention on GPUs: the goldens by the plain kernel, and models with heads of 64 and
// 128 by segments and states of chunks, against the scalar references.
#include <gtest/gtest.h>

#include "golden/cuda/relay_models.h"
#include "golden/support/chunked_model.h"
#include "golden/support/rounding.h"
#include "unit/io/expect_error.h"

namespace braid::golden {
namespace {

class CudaDualChunks : public testing::Test {
 protected:
  void SetUp() override {
    if (usable_gpus() == 0) GTEST_SKIP() << "no GPU";
  }
};

TEST_F(CudaDualChunks, GoldensInAnySteps) {
  const DualChunkGolden dual = load_dual_chunk_golden();
  for (const DualChunkCase& c : dual.cases) {
    SCOPED_TRACE(c.config);
    const ChunkedModel chunked(dual, c);
    const Golden golden{.columns = dual.columns, .cases = {c.logits}};
    const double tolerance = tolerance_of(chunked.model(), golden);
    for (int tp = 1; tp <= 2 && !cannot_run(tp); ++tp) {
      Runner runner(chunked.model(), cuda_runner(tp));
      for (const size_t step : {512, 64, 7, 1}) {
        SCOPED_TRACE(fmt::format("tp {}, steps of {}", tp, step));
        expect_logits(golden, c.logits, prompt_logits(runner, c.logits.prompt, step), tolerance);
      }
    }
  }
}

TEST_F(CudaDualChunks, DividedTokensAreRefused) {
  if (cannot_run(2)) GTEST_SKIP() << "one GPU";
  const DualChunkGolden dual = load_dual_chunk_golden();
  const DualChunkCase& c = dual.cases[0];
  const ChunkedModel chunked(dual, c);
  RunnerConfig config = cuda_runner(2);
  config.sp = SequenceParallel{SpMode::ring, {}};
  test::expect_error(ErrorCode::kUnsupported,
                     {"dual chunk attention", "divided tokens", "on GPUs", "at most 24 tokens"},
                     [&] {
                       Runner runner(chunked.model(), config);
                       prompt_logits(runner, c.logits.prompt, 512);
                     });
}

// Chunks of whole pages, a single chunk whose logits grow, and a chunk that ends inside a page.
const char* const kChunks[] = {
    R"({"chunk_size": 80, "local_size": 16, "original_max_position_embeddings": 40})",
    R"({"chunk_size": 48, "local_size": 16})",
    R"({"chunk_size": 1800, "local_size": 776, "original_max_position_embeddings": 20})",
    R"({"chunk_size": 60, "local_size": 23})"};

class CudaDualChunkShapes : public testing::TestWithParam<RelayCase> {};

TEST_P(CudaDualChunkShapes, EqualReference) {
  if (usable_gpus() == 0) GTEST_SKIP() << "no GPU";
  const RelayCase& c = GetParam();
  const Folder spec(c.name + "_chunks");
  const RandomModel random = model_of(c, spec.path());
  std::vector<int32_t> prompt;
  for (int i = 0; i < c.tokens; ++i) prompt.push_back((i * i * 7 + 3 * i) % 299);
  for (const char* chunks : kChunks) {
    SCOPED_TRACE(chunks);
    const ChunkedModel chunked(random, chunks);
    const Rows exact = reference_rows(chunked.model(), prompt, DType::f32);
    const double tolerance =
        2 * std::sqrt(2.) *
        largest_distance(reference_rows(chunked.model(), prompt, DType::bf16), exact);
    for (int tp = 1; tp <= 2 && !cannot_run(tp); ++tp) {
      Runner runner(chunked.model(), cuda_runner(tp));
      for (const size_t step : {512, 100, 7, 1}) {
        SCOPED_TRACE(fmt::format("tp {}, steps of {}", tp, step));
        EXPECT_LT(largest_distance(prompt_logits(runner, prompt, step), exact), tolerance);
      }
    }
    // Beside another sequence's prompt, a decode of the first, in one step.
    Runner runner(chunked.model(), cuda_runner());
    const auto n = std::ssize(prompt);
    std::vector<int32_t> first, second;
    KvPages pool(kPages, kPageSize);
    pool.reserve(first, n);
    pool.reserve(second, n);
    Batch batch(kPageSize);
    batch.add(std::span(prompt).first(n - 1), 0, first, 0);
    runner.step(batch);
    batch.clear();
    batch.add(std::span(prompt).last(1), n - 1, first, 1);
    batch.add(prompt, 0, second, 1);
    Rows rows;
    append_rows(runner.run(batch), rows);
    ASSERT_EQ(rows.size(), 2u);
    for (const auto& row : rows) EXPECT_LT(relative_distance(row, exact.back()), tolerance);
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, CudaDualChunkShapes,
                         testing::Values(RelayCase{.name = "chunks_of_64",
                                                   .family = "qwen2",
                                                   .C = 512,
                                                   .F = 320,
                                                   .Hq = 8,
                                                   .Hkv = 2,
                                                   .D = 64,
                                                   .tokens = 250},
                                         RelayCase{.name = "chunks_of_128",
                                                   .family = "qwen2",
                                                   .C = 896,
                                                   .F = 320,
                                                   .Hq = 7,
                                                   .Hkv = 1,
                                                   .D = 128,
                                                   .tokens = 210}),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace braid::golden
