// The loop that decodes on the device: several sequences, masks from the host, and who waits for
// whom.
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <thread>

#include "braid/engine/generate.h"
#include "braid/engine/loaded_model.h"
#include "golden/support/forward.h"
#include "golden/support/golden.h"
#include "golden/support/poisoned.h"
#include "golden/support/random_model.h"
#include "golden/support/texts.h"

namespace braid::golden {
namespace {

using std::chrono::milliseconds;

RunnerConfig config_for(int64_t sequences) {
  return {.device = {.cuda = true, .ids = {}},
          .cache = {.pages = sequences * kSequencePages,
                    .page_size = kPageSize,
                    .pages_per_sequence = kSequencePages,
                    .kv_dtype = DType::bf16,
                    .activations = DType::bf16}};
}

class CudaLoopTest : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (usable_gpus() == 0) GTEST_SKIP() << "no GPU";
    folder_ = std::make_unique<Folder>(GetParam() + "_loop");
    write_hf_folder(load_random_model(GetParam()), folder_->path());
    loaded_ = std::make_unique<LoadedModel>(folder_->path().string());
    golden_ = load_golden(GetParam());
  }

  std::vector<std::vector<int32_t>> prompts(size_t n) const {
    std::vector<std::vector<int32_t>> all;
    for (size_t i = 0; i < n; ++i) all.push_back(golden_.cases[i % golden_.cases.size()].prompt);
    return all;
  }
  int64_t mask_words() const { return ceil_div(loaded_->model.config().V, 32); }

  std::unique_ptr<Folder> folder_;
  std::unique_ptr<LoadedModel> loaded_;
  Golden golden_;
};

// Of the best logit: far more than bf16 rounding between ops moves two of them apart, far less than
// another text's logits differ.
constexpr float kRounding = 0.1f;

TEST_P(CudaLoopTest, SequencesOfABatchGoOnAsTheyWouldAlone) {
  for (const size_t n : {1, 3, 8, 17, 32, 45, 130}) {
    SCOPED_TRACE(fmt::format("{} sequences", n));
    Runner runner(loaded_->model, config_for(static_cast<int64_t>(n)));
    Texts texts(runner, prompts(n));
    const auto limit = static_cast<int64_t>(golden_.cases[0].greedy.size());
    texts.prefill();
    const auto ids = texts.run(texts.request(limit));
    texts.prefill();
    EXPECT_EQ(texts.run(texts.request(limit)), ids) << "the same again, from graphs";
    // Alone, with other kernels, each token is the best or within rounding of it.
    int best = 0;
    Runner alone(loaded_->model, config_for(1));
    for (size_t s = 0; s < std::min(n, golden_.cases.size()); ++s) {
      std::vector<int32_t> text = golden_.cases[s].prompt;
      const size_t begin = text.size() - 1;
      text.insert(text.end(), ids[s].begin(), ids[s].end() - 1);
      const Rows rows = prompt_logits(alone, text, 64);
      for (size_t i = 0; i < ids[s].size(); ++i) {
        const std::vector<float>& row = rows[begin + i];
        const float top = *std::ranges::max_element(row);
        const float behind = top - row[static_cast<size_t>(ids[s][i])];
        EXPECT_LE(behind, kRounding * std::abs(top)) << "sequence " << s << ", token " << i;
        best += behind == 0;
      }
    }
    EXPECT_GT(best, 0);
  }
}

TEST_P(CudaLoopTest, TheHostIsAheadAndMasksComeWhileTheStepRuns) {
  constexpr int64_t kTokens = 24;
  for (const size_t n : {size_t{1}, size_t{4}}) {
    SCOPED_TRACE(fmt::format("{} sequences", n));
    Runner runner(loaded_->model, config_for(static_cast<int64_t>(n)));
    Texts texts(runner, prompts(n));
    for (int round = 0; round < 2; ++round) {  // launch by launch at first, then graphs
      texts.prefill();
      LoopRequest request = texts.request(kTokens);
      std::mt19937 random(7);
      std::vector<uint32_t> mask(static_cast<size_t>(mask_words()));
      std::vector<std::vector<int32_t>> allowed(n);
      std::unique_ptr<TokenLoop> loop;
      int ahead = 0;
      for (size_t s = 0; s < n; ++s) {
        request.sequences[s].mask = [&, s](std::span<const int32_t> generated) {
          std::ranges::fill(mask, 0u);
          allowed[s].clear();
          for (int i = 0; i < 5; ++i) {
            const auto id = static_cast<int32_t>(random() % static_cast<uint32_t>(golden_.vocab));
            allowed[s].push_back(id);
            mask[static_cast<size_t>(id / 32)] |= 1u << (id % 32);
          }
          // Position g is not sampled before its mask is given; the step of position g + 1 is in
          // the device's queue by now. The host did not wait for the one to put in the other.
          if (loop->stats().positions == std::ssize(generated) + 2) ++ahead;
          return std::span<const uint32_t>(mask);
        };
      }
      loop = runner.loop(request);
      for (int64_t i = 0; i < kTokens; ++i) {
        const std::span<const SampledToken> tokens = loop->next();
        for (size_t s = 0; s < n; ++s) {
          EXPECT_EQ(std::ranges::count(allowed[s], tokens[s].id) > 0, true)
              << "token " << i << " of sequence " << s;
        }
      }
      // All but the last token, which no step follows; and the steps that are not yet a graph.
      EXPECT_GE(ahead, static_cast<int>(n) * (kTokens - (round == 0 ? 3 : 1)));
    }
  }
}

TEST_P(CudaLoopTest, AMaskedTokenIsTheBestThatIsAllowed) {
  constexpr int64_t kTokens = 12;
  Runner runner(loaded_->model, config_for(1));
  Texts texts(runner, prompts(1));
  texts.prefill();
  LoopRequest request = texts.request(kTokens);
  const auto words = static_cast<size_t>(mask_words());
  // Ids of one parity, in turns.
  std::vector<uint32_t> mask(words);
  request.sequences[0].mask = [&](std::span<const int32_t> generated) {
    std::ranges::fill(mask, generated.size() % 2 == 0 ? 0x55555555u : 0xaaaaaaaau);
    return std::span<const uint32_t>(mask);
  };
  const std::vector<int32_t> ids = texts.run(request)[0];
  std::vector<int32_t> text = prompts(1)[0];
  const std::vector<int32_t> pages = pages_of(0);
  for (size_t i = 0; i < ids.size(); ++i) {
    EXPECT_EQ(ids[i] % 2, static_cast<int32_t>(i % 2));
    Batch batch(kPageSize);
    batch.add({&text.back(), 1}, std::ssize(text) - 1, pages, 1);
    TensorView logits = runner.run(batch);
    std::ranges::fill(mask, i % 2 == 0 ? 0x55555555u : 0xaaaaaaaau);
    Sampler sampler({});
    EXPECT_EQ(
        sampler.sample({logits.as<float>(), static_cast<size_t>(logits.cols())}, {}, {}, mask).id,
        ids[i])
        << "token " << i;
    text.push_back(ids[i]);
  }
}

// Of the first sequence's error.
ErrorCode code_of(TokenLoop& loop, int64_t tokens, std::string& text) {
  for (int64_t i = 0; i < tokens; ++i) {
    const SampledToken& token = loop.next()[0];
    if (!token.error) continue;
    text = token.error->what();
    return token.error->code();
  }
  return {};
}

TEST_P(CudaLoopTest, AMaskThatIsLateEndsTheRequestAndNothingElse) {
  Runner runner(loaded_->model, config_for(1));
  Texts texts(runner, prompts(1));
  texts.prefill();
  const std::vector<int32_t> want = texts.run(texts.request(6))[0];
  const std::vector<uint32_t> all(static_cast<size_t>(mask_words()), ~0u), none(all.size(), 0u);
  for (const size_t late : {size_t{0}, size_t{1}, size_t{4}}) {
    SCOPED_TRACE(late);
    texts.prefill();
    LoopRequest request = texts.request(6);
    request.mask_deadline_ms = 20;
    request.sequences[0].mask = [&](std::span<const int32_t> generated) {
      if (generated.size() == late) std::this_thread::sleep_for(milliseconds(200));
      return std::span<const uint32_t>(all);
    };
    std::string text;
    EXPECT_EQ(code_of(*runner.loop(request), 6, text), ErrorCode::kDeadline);
    EXPECT_NE(text.find("mask of sequence 0 did not come within 20 ms"), std::string::npos) << text;
    EXPECT_EQ(text.find('\n'), std::string::npos);
  }
  texts.prefill();
  LoopRequest request = texts.request(6);
  request.sequences[0].mask = [&](std::span<const int32_t> generated) {
    return std::span<const uint32_t>(generated.size() == 3 ? none : all);
  };
  std::string text;
  EXPECT_EQ(code_of(*runner.loop(request), 6, text), ErrorCode::kInvalidArgument);
  EXPECT_NE(text.find("allows none"), std::string::npos) << text;
  // A loop that is left while a step waits for its mask does not hang.
  texts.prefill();
  const auto start = std::chrono::steady_clock::now();
  request.mask_deadline_ms = 60000;
  code_of(*runner.loop(request), 1, text);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(30));
  // And the runner goes on.
  texts.prefill();
  EXPECT_EQ(texts.run(texts.request(6))[0], want);
}

TEST(CudaLoopErrors, AnErrorOfOneSequenceIsItsOwn) {
  if (usable_gpus() == 0) GTEST_SKIP() << "no GPU";
  for (const std::string model : {"llama2_mha", "llama3_gqa"}) {
    const Golden golden = load_golden(model);
    const int32_t poison = unused_token(golden);
    const Folder folder(model + "_poisoned");
    write_hf_folder(poisoned_by(model, poison), folder.path());
    const LoadedModel loaded(folder.path().string());
    for (int tp = 1; tp <= 2 && !cannot_run(tp); ++tp) {
      for (const DType kv : {DType::bf16, DType::f16, DType::f32}) {
        for (const float temperature : {0.0f, 0.8f}) {
          SCOPED_TRACE(
              fmt::format("{}, tp {}, KV in {}, temperature {}", model, tp, name(kv), temperature));
          RunnerConfig config = config_for(4);
          config.device = gpus_for(tp);
          config.tp = tp;
          config.cache.kv_dtype = kv;
          Runner runner(loaded.model, config);
          expect_errors_of_their_own(runner, golden, poison, temperature);
        }
      }
    }
  }
}

// One sequence alone runs through other kernels than several.
TEST(CudaLoopErrors, OneSequenceAloneEndsByItsErrorToo) {
  if (usable_gpus() == 0) GTEST_SKIP() << "no GPU";
  const Golden golden = load_golden("llama2_mha");
  const int32_t poison = unused_token(golden);
  const Folder folder("alone_poisoned");
  write_hf_folder(poisoned_by("llama2_mha", poison), folder.path());
  const LoadedModel loaded(folder.path().string());
  Generator generator(loaded.model, loaded.tokenizer,
                      {.device = {.cuda = true, .ids = {}}, .threads = 1});
  std::vector<int32_t> bad = golden.cases[0].prompt;
  bad.push_back(poison);
  const Request good{.prompt = golden.cases[0].prompt, .max_tokens = 8, .ignore_eos = true};
  const std::vector<int32_t> want = generator.generate(good).ids;
  for (const float temperature : {0.0f, 0.8f}) {
    try {
      generator.generate({.prompt = bad, .sampling = {.temperature = temperature}});
      ADD_FAILURE() << "no error";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kMalformed);
      EXPECT_TRUE(std::string_view(error.what())
                      .starts_with(fmt::format("step 1, after {} tokens", bad.size())))
          << error.what();
    }
    EXPECT_EQ(generator.generate(good).ids, want);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, CudaLoopTest,
                         testing::Values("llama2_mha", "smollm2", "qwen3_qk_norm"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace braid::golden
