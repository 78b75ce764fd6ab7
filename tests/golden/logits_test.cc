// Logits and greedy tokens against Hugging Face's, for every model family, file format and rank
// count.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "braid/engine/generate.h"
#include "braid/engine/loaded_model.h"
#include "braid/ops/fusion.h"
#include "golden/support/expect_greedy.h"
#include "golden/support/forward.h"
#include "golden/support/golden.h"
#include "golden/support/random_model.h"

namespace braid::golden {
namespace {

namespace fs = std::filesystem;

constexpr double kF32Tolerance = 1e-4;  // relative, what f32 arithmetic in another order may differ

// Weights are met by activations in 16 bits per block of 32. Rounding x to steps of max|x| / 32512
// adds an error of step / sqrt(12), 2.1e-5 of a normal x (whose maximum of 32 is 2.4 sigma); the
// cache in f16 adds 2.1e-4 for K and V each. Four linears in a row per layer and the head add up in
// quadrature, twice, for two runs that round apart; a factor of 3 covers the spread.
double activation_tolerance(const ModelConfig& config) {
  const auto layers = static_cast<double>(config.layers);
  return 3 * std::sqrt(2 * (2.1e-5 * 2.1e-5 * (4 * layers + 1) + 2.1e-4 * 2.1e-4 * 2 * layers));
}

RunnerConfig runner_config(const Model& model, int tp, int ep = 1, int dp = 1) {
  return {.tp = tp,
          .ep = ep,
          .dp = dp,
          .cache = {.pages = kPages,
                    .page_size = kPageSize,
                    .pages_per_sequence = kPages,
                    .kv_dtype =
                        is_float(model.weight("layers.0.attn.o").dtype) ? DType::f32 : DType::f16}};
}

void expect_logits(const Golden& golden, const Case& c, const std::vector<std::vector<float>>& rows,
                   double tolerance) {
  ASSERT_EQ(rows.size(), c.prompt.size());
  EXPECT_LT(relative_distance(rows.back(), c.last), tolerance);
  std::vector<float> inner;
  for (int64_t position : c.inner_positions) {
    for (int64_t column : golden.columns) {
      inner.push_back(rows[static_cast<size_t>(position)][static_cast<size_t>(column)]);
    }
  }
  if (!inner.empty()) {
    EXPECT_LT(relative_distance(inner, c.inner), tolerance);
  }
}

// Sets of experts and groups of sequences that `ranks` ranks may have.
std::vector<std::pair<int, int>> rank_degrees(int ranks, bool mixture) {
  std::vector<std::pair<int, int>> all;
  for (int dp = 1; dp <= ranks; ++dp) {
    if (ranks % dp != 0) continue;
    for (int ep = 1; ep <= (mixture ? ranks : 1); ++ep) all.emplace_back(ep, dp);
  }
  return all;
}

class LogitsTest : public testing::TestWithParam<std::string> {};

TEST_P(LogitsTest, HuggingFaceFolderOnAnyNumberOfRanks) {
  const Folder folder(GetParam());
  write_hf_folder(load_random_model(GetParam()), folder.path());
  const LoadedModel loaded(folder.path().string());
  const Golden golden = load_golden(GetParam());
  const int most = static_cast<int>(std::min<int64_t>(loaded.model.config().Hq, 4));
  for (int tp = 1; tp <= most; ++tp) {
    const bool mixture = loaded.model.config().experts.has_value();
    for (const auto& [ep, dp] : rank_degrees(tp, mixture)) {
      SCOPED_TRACE(fmt::format("{} ranks, ep {}, dp {}", tp, ep, dp));
      Runner runner(loaded.model, runner_config(loaded.model, tp, ep, dp));
      for (const Case& c : golden.cases) {
        expect_logits(golden, c, prompt_logits(runner, c.prompt, 512), kF32Tolerance);
        expect_logits(golden, c, prompt_logits(runner, c.prompt, 7), kF32Tolerance);
      }
    }
  }
}

TEST_P(LogitsTest, GreedyTokens) {
  const Folder folder(GetParam() + "_greedy");
  write_hf_folder(load_random_model(GetParam()), folder.path());
  const LoadedModel loaded(folder.path().string());
  Generator generator(loaded.model, loaded.tokenizer, {.threads = 2});
  // 16-bit models keep a 16-bit KV cache: one more rounding of 2^-9 at most per key and value.
  const bool f32 = loaded.model.default_kv_dtype() == DType::f32;
  for (const Case& c : load_golden(GetParam()).cases) {
    expect_greedy(generator, c, f32 ? kF32Tolerance : 1e-2);
  }
}

TEST_P(LogitsTest, GgufInEveryForm) {
  const RandomModel random = load_random_model(GetParam());
  const Folder folder(GetParam() + "_gguf");
  for (const std::string& form : random.gguf_forms()) {
    SCOPED_TRACE(form);
    const fs::path path = folder.path() / (form + ".gguf");
    write_gguf(random, form, path);
    const Model model(path.string());
    const bool exact = form == "f32";
    const Golden golden = load_golden(GetParam(), form);
    const double tolerance = exact ? kF32Tolerance : activation_tolerance(model.config());
    Runner runner(model, runner_config(model, 1));
    for (const Case& c : golden.cases) {
      expect_logits(golden, c, prompt_logits(runner, c.prompt, 512), tolerance);
      expect_logits(golden, c, prompt_logits(runner, c.prompt, 1), tolerance);
    }
  }
}

// The scalar references meet quantized weights without rounding activations: they must come as
// close to Hugging Face on the dequantized weights as f32 does.
TEST_P(LogitsTest, ReferenceKernelsAreExactInEveryForm) {
  const RandomModel random = load_random_model(GetParam());
  const Folder folder(GetParam() + "_reference");
  for (const std::string& form : random.gguf_forms()) {
    SCOPED_TRACE(form);
    const fs::path path = folder.path() / (form + ".gguf");
    write_gguf(random, form, path);
    const Model model(path.string());
    const Golden golden = load_golden(GetParam(), form);
    const Case& c = golden.cases.front();
    const auto n = std::ssize(c.prompt);
    const Program plain = model.forward({.capacity = {n, 1, n},
                                         .pages = kPages,
                                         .page_size = kPageSize,
                                         .pages_per_sequence = kPages,
                                         .kv_dtype = DType::f32});
    for (const Program& program : {plain, fuse(plain, fusions())}) {
      expect_logits(golden, c, reference_logits(model, program, c.prompt), kF32Tolerance);
    }
    EXPECT_LT(fuse(plain, fusions()).ops.size(), plain.ops.size());
  }
}

INSTANTIATE_TEST_SUITE_P(Models, LogitsTest, testing::ValuesIn(random_model_names()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace braid::golden
