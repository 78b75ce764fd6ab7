// Dual chunk attention on GPUs: the goldens by the plain kernels, and models with heads of 64 and
// 128 by segments and states of chunks, against the scalar references; on a GPU, on GPUs that
// divide heads, and on GPUs that divide tokens.
#include <gtest/gtest.h>

#include "braid/engine/mesh_choice.h"
#include "golden/cuda/relay_models.h"
#include "golden/support/chunked_model.h"
#include "golden/support/rounding.h"

namespace braid::golden {
namespace {

struct Ranks {
  const char* name;
  int count = 1;
  std::optional<SpMode> mode = {};  // divides tokens; none: heads
  bool apart = false;               // each GPU keeps its own keys alone: queries go to the keys
};

void PrintTo(const Ranks& r, std::ostream* out) {
  *out << r.name;
}

const Ranks kRanks[] = {{"one"},
                        {"heads", 2},
                        {"ring", 2, SpMode::ring},
                        {"ulysses", 2, SpMode::ulysses},
                        {"torus", 2, SpMode::torus},
                        {"ring_apart", 2, SpMode::ring, true},
                        {"ring_of_four", 4, SpMode::ring},
                        {"torus_of_four_apart", 4, SpMode::torus, true}};

RunnerConfig runner_of(const Ranks& ranks) {
  RunnerConfig config = cuda_runner(ranks.count);
  if (ranks.mode) {
    config.sp = SequenceParallel{.mode = ranks.mode, .degrees = {}, .apart = ranks.apart};
  }
  return config;
}

// Prompts in steps of as many tokens.
class CudaDualChunks : public testing::TestWithParam<std::tuple<Ranks, size_t>> {};

TEST_P(CudaDualChunks, LogitsAreTheGolden) {
  const auto& [ranks, step] = GetParam();
  if (const char* why = cannot_run(ranks.count)) GTEST_SKIP() << why;
  const DualChunkGolden dual = load_dual_chunk_golden();
  for (const DualChunkCase& c : dual.cases) {
    SCOPED_TRACE(c.config);
    const ChunkedModel chunked(dual, c);
    const Golden golden{.columns = dual.columns, .cases = {c.logits}};
    Runner runner(chunked.model(), runner_of(ranks));
    const Rows rows = prompt_logits(runner, c.logits.prompt, step);
    expect_logits(golden, c.logits, rows, tolerance_of(chunked.model(), golden));
    if (ranks.apart) continue;  // keys of the next prompt may lie on other ranks
    EXPECT_TRUE(prompt_logits(runner, c.logits.prompt, step) == rows) << "the same again";
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, CudaDualChunks,
                         testing::Combine(testing::ValuesIn(kRanks),
                                          testing::Values(512, 64, 7, 1)),
                         [](const auto& info) {
                           return fmt::format("{}_by_{}", std::get<0>(info.param).name,
                                              std::get<1>(info.param));
                         });

// Chunks of whole pages, a single chunk whose logits grow, and a chunk that ends inside a page.
const char* const kChunks[] = {
    R"({"chunk_size": 80, "local_size": 16, "original_max_position_embeddings": 40})",
    R"({"chunk_size": 48, "local_size": 16})",
    R"({"chunk_size": 1800, "local_size": 776, "original_max_position_embeddings": 20})",
    R"({"chunk_size": 60, "local_size": 23})"};

// In one step the last token of a sequence, and a second sequence: their logits.
Rows decode_beside_prompt(Runner& runner, const std::vector<int32_t>& prompt) {
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
  return rows;
}

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
    for (const Ranks& ranks : kRanks) {
      if (ranks.count > 2 || cannot_run(ranks.count)) continue;  // goldens are enough there
      SCOPED_TRACE(ranks.name);
      Runner runner(chunked.model(), runner_of(ranks));
      for (const size_t step : {512, 100, 7, 1}) {
        SCOPED_TRACE(fmt::format("steps of {}", step));
        EXPECT_LT(largest_distance(prompt_logits(runner, prompt, step), exact), tolerance);
      }
      const Rows rows = decode_beside_prompt(runner, prompt);
      ASSERT_EQ(rows.size(), 2u);
      for (const auto& row : rows) EXPECT_LT(relative_distance(row, exact.back()), tolerance);
    }
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
