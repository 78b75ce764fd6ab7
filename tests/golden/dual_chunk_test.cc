// Dual chunk attention with small chunks against tools/make_dual_chunk_goldens.py, which computes
// in f64 with keys turned inside their chunks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "braid/braid.h"
#include "braid/ops/fusion.h"
#include "golden/support/chunked_model.h"
#include "golden/support/expect_golden.h"
#include "unit/io/expect_error.h"

namespace braid::golden {
namespace {

constexpr CacheShape kCache = {
    .pages = kPages, .page_size = kPageSize, .pages_per_sequence = kPages, .kv_dtype = DType::f32};

// Prompts in a step, in steps that cut chunks anywhere, and token by token, on ranks that divide
// heads.
TEST(DualChunks, LogitsInAnyStepsOnAnyNumberOfRanks) {
  const DualChunkGolden golden = load_dual_chunk_golden();
  for (const DualChunkCase& c : golden.cases) {
    SCOPED_TRACE(c.config);
    const ChunkedModel chunked(golden, c);
    EXPECT_LT(chunked.plain(), std::ssize(c.logits.prompt));
    for (const int ranks : {1, 2, 4}) {
      Runner runner(chunked.model(), {.tp = ranks, .threads = 3 - ranks / 2, .cache = kCache});
      for (const size_t step : {512, 64, 7, 1}) {
        SCOPED_TRACE(fmt::format("{} ranks, steps of {}", ranks, step));
        expect_golden(golden.columns, c.logits, prompt_logits(runner, c.logits.prompt, step));
      }
    }
  }
}

TEST(DualChunks, ScalarReferencesAgree) {
  const DualChunkGolden golden = load_dual_chunk_golden();
  for (const DualChunkCase& c : golden.cases) {
    const ChunkedModel chunked(golden, c);
    const auto n = std::ssize(c.logits.prompt);
    const Program plain = chunked.model().forward({.capacity = {n, 1, n},
                                                   .pages = kPages,
                                                   .page_size = kPageSize,
                                                   .pages_per_sequence = kPages,
                                                   .kv_dtype = DType::f32});
    for (const Program& program : {plain, fuse(plain, fusions())}) {
      expect_golden(golden.columns, c.logits,
                    reference_logits(chunked.model(), program, c.logits.prompt));
    }
  }
}

// A second sequence goes on from the first one's pages, beside a decode of the first.
TEST(DualChunks, CachedPrefixesServeOthers) {
  const DualChunkGolden golden = load_dual_chunk_golden();
  const DualChunkCase& c = golden.cases[0];
  const std::vector<int32_t>& prompt = c.logits.prompt;
  const ChunkedModel chunked(golden, c);
  Runner runner(chunked.model(), {.threads = 2, .cache = kCache});
  const std::vector<int32_t> first = {5, 9, 2, 30, 31, 1, 0, 40, 41};
  const std::vector<int32_t> second = {5, 9, 2, 30, 11, 12, 13, 14, 15};
  const auto shared = 4 * kPageSize, n = std::ssize(prompt);
  Batch batch(kPageSize);
  batch.add(std::span(prompt).first(n - 1), 0, first, 0);
  runner.step(batch);
  batch.clear();
  batch.add(std::span(prompt).last(1), n - 1, first, 1);
  batch.add(std::span(prompt).subspan(shared), shared, second, 1);
  Rows rows;
  append_rows(runner.run(batch), rows);
  ASSERT_EQ(rows.size(), 2u);
  for (const auto& row : rows) EXPECT_LT(relative_distance(row, c.logits.last), kF32Tolerance);
}

// Where no query meets a key in another way than plain attention has it, the plan is the plain one.
TEST(DualChunks, ShortSequencesArePlain) {
  const DualChunkGolden golden = load_dual_chunk_golden();
  const ChunkedModel chunked(golden, golden.cases[2]);
  const auto printed = [&](int64_t pages) {
    return to_string(chunked.model().forward({.capacity = {1, 1, 1},
                                              .pages = pages,
                                              .page_size = kPageSize,
                                              .pages_per_sequence = pages,
                                              .kv_dtype = DType::f32}));
  };
  EXPECT_EQ(chunked.plain(), 4 * kPageSize);
  EXPECT_EQ(printed(4).find("key_chunk"), std::string::npos);
  EXPECT_NE(printed(5).find("key_chunk"), std::string::npos);
}

TEST(DualChunks, AnEngineLengthensTheContext) {
  const DualChunkGolden golden = load_dual_chunk_golden();
  const DualChunkCase& c = golden.cases[0];
  const ChunkedModel chunked(golden, c);
  const int64_t longest = chunked.model().config().context;
  const auto open = [&](int64_t context) {
    return std::make_unique<Engine>(
        chunked.path(), EngineConfig{.threads = 1, .max_context = context, .kv_dtype = DType::f32},
        RequestLimits{.scheduler = {.max_running = 1}});
  };
  const auto best = std::ranges::max_element(c.logits.last) - c.logits.last.begin();
  const Answer answer = open(longest)->generate(
      {.prompt = c.logits.prompt, .max_tokens = 1, .ignore_eos = true, .list_tokens = true});
  ASSERT_EQ(answer.tokens.size(), 1u);
  EXPECT_EQ(answer.tokens[0].id, best);
  test::expect_error(ErrorCode::kInvalidArgument, {fmt::format("goes to {}", longest)},
                     [&] { open(longest + 1); });
}

// Far keys are thinned as far as plain attention goes; a longer context is refused at the start.
TEST(DualChunks, ThinnedKeysEndWithPlainAttention) {
  const DualChunkGolden golden = load_dual_chunk_golden();
  const ChunkedModel chunked(golden, golden.cases[2]);
  for (const bool ring : {false, true}) {
    const auto open = [&](int64_t pages) {
      RunnerConfig config{.tp = ring ? 2 : 1, .cache = kCache};
      if (ring) config.sp = SequenceParallel{SpMode::ring, {}};
      config.thinning = {.keep = {0.5}, .groups = {2}};
      config.cache.pages = config.cache.pages_per_sequence = pages;
      return std::make_unique<Runner>(chunked.model(), config);
    };
    ASSERT_EQ(chunked.plain(), 4 * kPageSize);
    const std::vector<int32_t>& prompt = golden.cases[2].logits.prompt;
    prompt_logits(*open(4), {prompt.begin(), prompt.begin() + 4 * kPageSize}, 4 * kPageSize);
    test::expect_error(ErrorCode::kUnsupported,
                       {"--keep: beyond 64 tokens the model has dual chunk attention, and the "
                        "context is 80"},
                       [&] { open(5); });
  }
}

// Divided tokens: prompts by moved keys, steps of few tokens by moved queries.
TEST(DualChunks, DividedTokensInAnySteps) {
  const DualChunkGolden golden = load_dual_chunk_golden();
  for (const DualChunkCase& c : golden.cases) {
    SCOPED_TRACE(c.config);
    const ChunkedModel chunked(golden, c);
    for (const SpMode mode : {SpMode::ring, SpMode::ulysses, SpMode::torus}) {
      for (const int ranks : {1, 2, 3, 4}) {
        Runner runner(chunked.model(),
                      {.tp = ranks, .sp = SequenceParallel{mode, {}}, .cache = kCache});
        for (const size_t step : {512, 64, 7, 1}) {
          SCOPED_TRACE(fmt::format("{}, {} ranks, steps of {}", to_string(mode), ranks, step));
          expect_golden(golden.columns, c.logits, prompt_logits(runner, c.logits.prompt, step));
        }
      }
    }
  }
}

}  // namespace
}  // namespace braid::golden
