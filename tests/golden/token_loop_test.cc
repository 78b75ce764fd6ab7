// Loops whose tokens the host samples: several sequences at once, and masks.
#include "braid/engine/token_loop.h"

#include "braid/engine/host_loop.h"
#include "braid/engine/loaded_model.h"
#include "golden/support/golden.h"
#include "golden/support/poisoned.h"
#include "golden/support/random_model.h"
#include "golden/support/texts.h"

namespace braid::golden {
namespace {

class TokenLoopTest : public testing::Test {
 protected:
  TokenLoopTest() : folder_("token_loop"), golden_(load_golden("smollm2")) {
    write_hf_folder(load_random_model("smollm2"), folder_.path());
    loaded_ = std::make_unique<LoadedModel>(folder_.path().string());
  }

  RunnerConfig config(int64_t sequences, int tp = 1) const {
    return {.tp = tp,
            .cache = {.pages = sequences * kSequencePages,
                      .page_size = kPageSize,
                      .pages_per_sequence = kSequencePages,
                      .kv_dtype = DType::f32}};
  }
  std::vector<std::vector<int32_t>> prompts(size_t n) const {
    std::vector<std::vector<int32_t>> all;
    for (size_t i = 0; i < n; ++i) all.push_back(golden_.cases[i % golden_.cases.size()].prompt);
    return all;
  }

  Folder folder_;
  Golden golden_;
  std::unique_ptr<LoadedModel> loaded_;
};

TEST_F(TokenLoopTest, SequencesGoOnAsTheyWouldAlone) {
  const size_t n = golden_.cases.size();
  ASSERT_GT(n, 1u);
  for (const int tp : {1, 2}) {
    Runner runner(loaded_->model, config(static_cast<int64_t>(n), tp));
    Texts texts(runner, prompts(n));
    texts.prefill();
    const auto ids = texts.run(texts.request(8));
    for (size_t s = 0; s < n; ++s) {
      const std::vector<int32_t>& want = golden_.cases[s].greedy;
      ASSERT_GE(want.size(), 8u);
      EXPECT_EQ(ids[s], std::vector(want.begin(), want.begin() + 8)) << "sequence " << s;
    }
  }
}

// With fewer, as many and more threads than sequences.
TEST_F(TokenLoopTest, ThreadsSampleWhatOneSamples) {
  const size_t n = 4;
  Runner runner(loaded_->model, config(n));
  Texts texts(runner, prompts(n));
  LoopRequest request = texts.request(6);
  request.kv_dtype = DType::f32;
  request.page_size = kPageSize;
  for (LoopSequence& s : request.sequences) s.sampling = {.temperature = 2, .seed = 3};
  texts.prefill();
  const auto want = texts.run(request);
  for (const int threads : {1, 3, 4, 6}) {
    cpu::ThreadPool pool(threads, 64);  // tests run side by side
    texts.prefill();
    HostLoop loop(runner, request, runner.logits(), &pool);
    for (size_t i = 0; i < want[0].size(); ++i) {
      const std::span<const SampledToken> tokens = loop.next();
      for (size_t s = 0; s < n; ++s) {
        EXPECT_EQ(tokens[s].id, want[s][i]) << threads << " threads, sequence " << s;
      }
    }
  }
}

TEST_F(TokenLoopTest, MasksSeeTheTokensSoFarAndBind) {
  Runner runner(loaded_->model, config(2));
  Texts texts(runner, prompts(2));
  texts.prefill();
  LoopRequest request = texts.request(6);
  std::vector<std::vector<int32_t>> seen;
  std::vector<uint32_t> mask(static_cast<size_t>(ceil_div(golden_.vocab, 32)));
  request.sequences[1].mask = [&](std::span<const int32_t> generated) {
    seen.emplace_back(generated.begin(), generated.end());
    std::ranges::fill(mask, 0u);
    mask[generated.size() + 1] = 1u << 7;
    return std::span<const uint32_t>(mask);
  };
  const auto ids = texts.run(request);
  EXPECT_EQ(ids[0],
            std::vector(golden_.cases[0].greedy.begin(), golden_.cases[0].greedy.begin() + 6));
  for (size_t i = 0; i < ids[1].size(); ++i) {
    EXPECT_EQ(ids[1][i], static_cast<int32_t>(32 * (i + 1) + 7));
    EXPECT_EQ(seen[i], std::vector(ids[1].begin(), ids[1].begin() + static_cast<int64_t>(i)));
  }
  texts.prefill();
  request.sequences[1].mask = [&](std::span<const int32_t>) {
    std::ranges::fill(mask, 0u);
    return std::span<const uint32_t>(mask);
  };
  const auto loop = runner.loop(request);
  const std::span<const SampledToken> tokens = loop->next();
  EXPECT_FALSE(tokens[0].error);
  EXPECT_EQ(tokens[0].id, golden_.cases[0].greedy[0]);
  ASSERT_TRUE(tokens[1].error);
  EXPECT_EQ(tokens[1].error->code(), ErrorCode::kInvalidArgument);
}

TEST(TokenLoop, AnErrorOfOneSequenceIsItsOwn) {
  const Golden golden = load_golden("llama2_mha");
  const int32_t poison = unused_token(golden);
  const Folder folder("poisoned");
  write_hf_folder(poisoned_by("llama2_mha", poison), folder.path());
  const LoadedModel loaded(folder.path().string());
  for (const int tp : {1, 2}) {
    for (const DType kv : {DType::f32, DType::f16, DType::bf16}) {
      for (const float temperature : {0.0f, 0.8f}) {
        SCOPED_TRACE(fmt::format("tp {}, KV in {}, temperature {}", tp, name(kv), temperature));
        Runner runner(loaded.model, {.tp = tp,
                                     .cache = {.pages = 4 * kSequencePages,
                                               .page_size = kPageSize,
                                               .pages_per_sequence = kSequencePages,
                                               .kv_dtype = kv}});
        expect_errors_of_their_own(runner, golden, poison, temperature);
      }
    }
  }
}

}  // namespace
}  // namespace braid::golden
