// Decode steps of several sequences under forced forms of `--decode`: against the scalar references
// and against themselves.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <string_view>

#include "braid/base/error.h"
#include "braid/kernels/cuda/fused_attention/fused_config.h"
#include "braid/ops/attention_block.h"
#include "golden/cuda/relay_models.h"

namespace braid::golden {
namespace {

class CudaDecodeSequences : public CudaRelay {
 protected:
  // The logits of sequences that walk through the prompt side by side, and begin one after the
  // other: the first takes up to `most` tokens a step, the others one.
  Rows together(Runner& runner, size_t sequences, size_t most) const {
    constexpr size_t kLater = 5;  // steps
    KvPages pool(kPages * static_cast<int64_t>(sequences), kPageSize);
    std::vector<std::vector<int32_t>> pages(sequences);
    std::vector<size_t> done(sequences);
    Rows rows;
    for (size_t step = 0;; ++step) {
      Batch batch(kPageSize);
      std::vector<size_t> positions;
      for (size_t s = 0; s < sequences && s * kLater <= step; ++s) {
        const size_t n = std::min(s == 0 ? 1 + step % most : 1, prompt_.size() - done[s]);
        if (n == 0) continue;
        pool.reserve(pages[s], static_cast<int64_t>(done[s] + n));
        batch.add(std::span(prompt_).subspan(done[s], n), static_cast<int64_t>(done[s]), pages[s],
                  static_cast<int64_t>(n));
        for (size_t i = 0; i < n; ++i) positions.push_back(done[s]++);
      }
      if (positions.empty()) return rows;
      const size_t first = rows.size();
      append_rows(runner.run(batch), rows);
      for (size_t i = 0; i < positions.size(); ++i) {
        EXPECT_LT(relative_distance(rows[first + i], exact_[positions[i]]), tolerance_)
            << "step " << step << ", row " << i;
      }
    }
  }
};

// Decode steps with several sequences, on one, two and four GPUs.
TEST_P(CudaDecodeSequences, EqualReference) {
  const RelayCase& c = GetParam();
  if (c.C % 64 != 0) GTEST_SKIP() << "no fused form";
  const struct {
    const char* form;
    size_t sequences, most;
  } runs[] = {{"fused", 2, 3},
              {"fused", 15, 1},
              {"fused:cluster=1,scope=projected", 4, 1},
              {"fused:cluster=2,parts=3,scope=projected", 3, 2},
              {"fused:cluster=3,scope=projected,exchange=memory", 7, 2}};
  for (const auto& run : runs) {
    for (const int ranks : {1, 2, 4}) {
      if (ranks > usable_gpus() || c.Hkv % ranks != 0) continue;
      SCOPED_TRACE(fmt::format("{}, {} ranks, {} sequences", run.form, ranks, run.sequences));
      RunnerConfig config = cuda_runner(ranks);
      config.cache.pages = kPages * static_cast<int64_t>(run.sequences);
      config.decode = run.form;
      Runner runner(*model_, config);
      if (c.D >= 128 && c.Hq / c.Hkv >= 8 && run.sequences > 8) {
        // Groups of 8 heads of 128 and 16 tokens leave no room for a ring.
        EXPECT_THROW(together(runner, run.sequences, run.most), Error);
        continue;
      }
      const Rows rows = together(runner, run.sequences, run.most);
      EXPECT_EQ(together(runner, run.sequences, run.most), rows);
      const Program& program = runner.last_step(0).executor->program();
      EXPECT_EQ(std::ranges::count(program.ops, &ops::kAttentionBlock, &Op::def), c.layers);
    }
  }
}

// The driver counts clusters of the whole GPU: ranks that share a GPU have no blocks, and `auto`
// says so.
class CudaSharedGpu : public CudaRelay {};

TEST_P(CudaSharedGpu, HasNoBlocks) {
  if (!testing_cuda::ranks_may_share()) GTEST_SKIP() << "a GPU with one queue";
  RunnerConfig config = cuda_runner(2);
  config.device.ids = {0, 0};
  config.decode = "fused";
  Runner fused(*model_, config);
  try {
    prompt_logits(fused, prompt_, 1);
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("ranks that share a GPU: one"));
  }
  config.decode = "auto";
  Runner runner(*model_, config);
  expect_exact(runner);
  EXPECT_THAT(runner.explain(), testing::Contains(testing::HasSubstr("ranks that share a GPU")));
}

INSTANTIATE_TEST_SUITE_P(Shapes, CudaSharedGpu, testing::Values(kRelayCases[0]),
                         [](const auto& info) { return info.param.name; });

// Groups beyond a relay's.
constexpr int64_t kWide = cuda::kFusedMaxGroup;
const RelayCase kWideCases[] = {
    {.name = "wide_of_64", .C = 256, .F = 512, .Hq = kWide, .Hkv = 1, .D = 64, .tokens = 150},
    {.name = "wide_of_128", .C = 320, .F = 512, .Hq = 24, .Hkv = 2, .D = 128, .tokens = 90},
};
INSTANTIATE_TEST_SUITE_P(Wide, CudaDecodeSequences, testing::ValuesIn(kWideCases),
                         [](const auto& info) { return info.param.name; });
INSTANTIATE_TEST_SUITE_P(Shapes, CudaDecodeSequences, testing::ValuesIn(kRelayCases),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace braid::golden
