// Models on GPUs: against Hugging Face's goldens, against exact arithmetic on the demo model,
// across ranks, and against themselves a thousand times.
#include <gtest/gtest.h>

#include <cmath>

#include "braid/engine/generate.h"
#include "braid/engine/loaded_model.h"
#include "golden/support/expect_greedy.h"
#include "golden/support/forward.h"
#include "golden/support/golden.h"
#include "golden/support/random_model.h"
#include "golden/support/rounding.h"

namespace braid::golden {
namespace {

namespace fs = std::filesystem;

class CudaModel : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (usable_gpus() == 0) GTEST_SKIP() << "no GPU";
  }
};

TEST_P(CudaModel, LogitsInEveryForm) {
  const RandomModel random = load_random_model(GetParam());
  const Folder folder(GetParam());
  std::vector<std::string> forms = random.gguf_forms();
  for (const std::string& form : forms) {
    SCOPED_TRACE(form);
    const fs::path path = folder.path() / (form + ".gguf");
    write_gguf(random, form, path);
    const Model model(path.string());
    const Golden golden = load_golden(GetParam(), form);
    LogitsCheck check(model, golden);
    Runner runner(model, cuda_runner(1));
    for (const Case& c : golden.cases) {
      for (const size_t chunk : {512u, 7u, 1u}) {
        SCOPED_TRACE(chunk);
        check.expect(c, prompt_logits(runner, c.prompt, chunk));
      }
    }
  }
}

// Caches that are more precise than activations are not further from exact.
TEST_P(CudaModel, LogitsWithCachesOfOtherDtypes) {
  const Folder folder(GetParam() + "_kv");
  write_hf_folder(load_random_model(GetParam()), folder.path());
  const LoadedModel loaded(folder.path().string());
  const Golden golden = load_golden(GetParam());
  LogitsCheck check(loaded.model, golden);
  for (const DType kv : {DType::f16, DType::f32}) {
    for (int tp = 1; tp <= 2 && !cannot_run(tp); ++tp) {
      SCOPED_TRACE(fmt::format("{}, tp {}", name(kv), tp));
      RunnerConfig config = cuda_runner(tp);
      config.cache.kv_dtype = kv;
      Runner runner(loaded.model, config);
      for (const Case& c : golden.cases) {
        for (const size_t chunk : {512u, 7u, 1u}) {
          check.expect(c, prompt_logits(runner, c.prompt, chunk));
        }
      }
    }
  }
}

TEST_P(CudaModel, RanksAgree) {
  if (const char* why = cannot_run(2)) GTEST_SKIP() << why;
  const Folder folder(GetParam() + "_tp");
  write_hf_folder(load_random_model(GetParam()), folder.path());
  const LoadedModel loaded(folder.path().string());
  const Golden golden = load_golden(GetParam());
  LogitsCheck check(loaded.model, golden);
  const int most = static_cast<int>(std::min<int64_t>(loaded.model.config().Hq, 4));
  for (int tp = 2; tp <= most && !cannot_run(tp); ++tp) {
    for (const std::string schedule : {"sequential", "overlap", "nanoflow", "tokenweave"}) {
      SCOPED_TRACE(fmt::format("tp {} {}", tp, schedule));
      RunnerConfig config = cuda_runner(tp);
      config.schedule = schedule;
      Runner runner(loaded.model, config);
      for (const Case& c : golden.cases) {
        check.expect(c, prompt_logits(runner, c.prompt, 512));
        check.expect(c, prompt_logits(runner, c.prompt, 7));
      }
    }
  }
}

TEST_P(CudaModel, GreedyTokensOfTheLoop) {
  const Folder folder(GetParam() + "_greedy");
  write_hf_folder(load_random_model(GetParam()), folder.path());
  const LoadedModel loaded(folder.path().string());
  const Golden golden = load_golden(GetParam());
  const double tolerance = tolerance_of(loaded.model, golden);
  const int most = static_cast<int>(std::min<int64_t>(loaded.model.config().Hq, 3));
  for (int tp = 1; tp <= most && !cannot_run(tp); ++tp) {
    SCOPED_TRACE(fmt::format("tp {}", tp));
    Generator generator(loaded.model, loaded.tokenizer,
                        {.device = gpus_for(tp), .tp = tp, .threads = 1});
    for (const Case& c : golden.cases) {
      expect_greedy(generator, c, tolerance, 2);
      if (HasFatalFailure()) return;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, CudaModel, testing::ValuesIn(random_model_names()),
                         [](const auto& info) { return info.param; });

class CudaDemo : public testing::Test {
 protected:
  void SetUp() override {
    if (usable_gpus() == 0) GTEST_SKIP() << "no GPU";
    const char* path = std::getenv("BRAID_TEST_MODEL");
    if (path == nullptr) GTEST_SKIP() << "BRAID_TEST_MODEL names no model";
    loaded_ = std::make_unique<LoadedModel>(path);
  }

  std::unique_ptr<LoadedModel> loaded_;
};

double deviation_of(std::span<const float> row) {
  double sum = 0, squares = 0;
  for (const double x : row) {
    sum += x;
    squares += x * x;
  }
  const auto n = static_cast<double>(row.size());
  return std::sqrt(squares / n - sum / n * (sum / n));
}

// Rounding to bf16 (2^-9 of a number at most, 0.46 * 2^-9 in quadratic mean) some 14 times in each
// layer, independently: norms, q k v, their rotation, the cache, probabilities, attention's output,
// four projections and the gate. A factor of 4 covers that the softmax magnifies them.
double demo_rounding(const ModelConfig& config) {
  return 4 * 0.46 * 0x1p-9 * std::sqrt(14 * static_cast<double>(config.layers) + 2);
}

// The best token is that of exact arithmetic wherever its lead is larger than rounding, in prefill
// and token by token, on one GPU and on several, in caches of each dtype.
TEST_F(CudaDemo, TokensOfExactArithmetic) {
  constexpr size_t kTokens = 48;
  const DemoGolden golden = load_demo_golden();
  const double rounding = demo_rounding(loaded_->model.config());
  std::vector<RunnerConfig> configs;
  for (int tp = 1; tp <= 3 && !cannot_run(tp); ++tp) configs.push_back(cuda_runner(tp));
  for (const DType kv : {DType::f16, DType::f32}) {
    configs.push_back(cuda_runner(1));
    configs.back().cache.kv_dtype = kv;
  }
  for (const RunnerConfig& config : configs) {
    const std::string what = fmt::format("tp {}, KV in {}", config.tp, name(config.cache.kv_dtype));
    Runner runner(loaded_->model, config);
    int decided = 0, all = 0;
    for (const DemoCase& c : golden.cases) {
      std::vector<int32_t> text = c.ids;
      text.insert(text.end(), c.greedy.begin(), c.greedy.begin() + kTokens - 1);
      for (const size_t chunk : {size_t{512}, size_t{1}}) {
        const Rows rows = prompt_logits(runner, text, chunk);
        for (size_t t = 0; t < kTokens; ++t) {
          const std::vector<float>& row = rows[c.ids.size() - 1 + t];
          ++all;
          if (c.gaps[t] <= 2 * rounding * deviation_of(row)) continue;
          ++decided;
          const auto best = std::max_element(row.begin(), row.end()) - row.begin();
          EXPECT_EQ(static_cast<int32_t>(best), c.greedy[t])
              << what << ", chunk " << chunk << ", token " << t << " after '" << c.text
              << "', lead " << c.gaps[t];
        }
      }
    }
    std::printf("%s: %d of %d places decided by more than rounding\n", what.c_str(), decided, all);
    EXPECT_GT(decided, all / 2);
  }
}

TEST_F(CudaDemo, AThousandRunsGiveTheSameBits) {
  Runner runner(loaded_->model, cuda_runner(1));
  const std::vector<int32_t> prompt = load_demo_golden().cases[0].ids;
  for (const size_t tokens : {size_t{1}, prompt.size()}) {
    Batch batch(kPageSize);
    batch.add(std::span(prompt).first(tokens), 0, std::vector<int32_t>{0, 1, 2, 3, 4, 5, 6, 7}, 1);
    std::vector<float> first;
    for (int i = 0; i < 1000; ++i) {
      const TensorView logits = runner.run(batch);
      const std::vector<float> row(logits.as<float>(), logits.as<float>() + logits.cols());
      if (i == 0) first = row;
      ASSERT_TRUE(row == first) << "run " << i << " of " << tokens << " tokens";
    }
  }
}

TEST_F(CudaDemo, SamplingOnTheGpuIsThatOfTheHost) {
  const std::vector<int32_t> prompt = load_demo_golden().cases[1].ids;
  Generator generator(loaded_->model, loaded_->tokenizer,
                      {.device = {.cuda = true, .ids = {}}, .threads = 1});
  Runner& runner = generator.runner();
  for (const SamplingParams& params :
       {SamplingParams{}, SamplingParams{.temperature = 0.8f, .top_k = 40, .seed = 3},
        SamplingParams{.temperature = 1, .top_p = 0.9f, .seed = 4, .logprobs = 3},
        SamplingParams{.temperature = 1.2f, .min_p = 0.05f, .repetition_penalty = 1.1f, .seed = 5},
        SamplingParams{.frequency_penalty = 0.5f, .presence_penalty = 0.3f}}) {
    const Generation g = generator.generate(
        {.prompt = prompt, .max_tokens = 40, .sampling = params, .ignore_eos = true});
    // The host's sampler on the logits of the same tokens.
    Sampler sampler(params);
    std::vector<int32_t> text = prompt, generated;
    int differ = 0;
    for (size_t i = 0; i < g.ids.size(); ++i) {
      Batch batch(64);
      const size_t begin = i == 0 ? 0 : text.size() - 1;
      batch.add(std::span(text).subspan(begin), static_cast<int64_t>(begin),
                std::vector<int32_t>{0, 1, 2, 3}, 1);
      TensorView logits = runner.run(batch);
      const SampledToken token = sampler.sample(
          {logits.as<float>(), static_cast<size_t>(logits.cols())}, prompt, generated);
      if (token.id != g.ids[i]) ++differ;
      if (params.logprobs >= 0 && token.id == g.ids[i]) {
        EXPECT_NEAR(token.logprob, g.sampled[i].logprob, 1e-3);
        ASSERT_EQ(token.top.size(), g.sampled[i].top.size());
        EXPECT_EQ(token.top[0].id, g.sampled[i].top[0].id);
      }
      text.push_back(g.ids[i]);
      generated.push_back(g.ids[i]);
    }
    // A uniform number may fall within rounding of a boundary.
    EXPECT_LE(differ, 1);
  }
}

}  // namespace
}  // namespace braid::golden
