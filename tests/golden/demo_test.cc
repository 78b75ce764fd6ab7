// The demo model, when it is there (BRAID_TEST_MODEL): against exact arithmetic, and across ranks.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <numeric>
#include <optional>

#include "braid/engine/generate.h"
#include "braid/engine/loaded_model.h"
#include "golden/support/golden.h"

namespace braid::golden {
namespace {

class DemoTest : public testing::Test {
 protected:
  void SetUp() override {
    const char* path = std::getenv("BRAID_TEST_MODEL");
    if (path == nullptr) GTEST_SKIP() << "BRAID_TEST_MODEL names no model";
    loaded_ = std::make_unique<LoadedModel>(path);
  }

  std::unique_ptr<LoadedModel> loaded_;
};

// How far rounding moves the lead of one token over another, as a standard deviation relative to
// that of the logits, between two runs that round alike but for the order of f32 sums. Those orders
// differ by 1e-7, enough to move some codes by one; later layers see other numbers and their codes
// part for good. So the bound is that of independent errors, of two tokens in two runs.
double lead_rounding(const ModelConfig& config, DType kv) {
  const auto layers = static_cast<double>(config.layers);
  // x in steps of max |x| / 32512 over 32 values; their maximum is 2.4 sigma if they are normal.
  // Four linears in a row per layer and the head add up in quadrature.
  const double code = 2.4 / 32512 / std::sqrt(12);
  // f16 keeps 11 bits: steps of 2^-10 to 2^-11 of a number, 0.74 * 2^-10 in quadratic mean. K and V
  // of each layer.
  const double cached = kv == DType::f16 ? 0.74 * 0x1p-10 / std::sqrt(12) : 0;
  return 2 * std::sqrt(code * code * (4 * layers + 1) + cached * cached * 2 * layers);
}
// Of a normal error one in 5e8 is larger.
constexpr double kDeviations = 6;

constexpr size_t kTokens = 48;  // of each text's greedy continuation

// Logits f32 [V] after a prompt and the first t tokens of its exact continuation.
using OnRow = std::function<void(const DemoCase& c, size_t t, std::span<const float> row)>;

std::vector<int32_t> text_of(const DemoCase& c) {
  std::vector<int32_t> text = c.ids;
  text.insert(text.end(), c.greedy.begin(), c.greedy.begin() + kTokens - 1);
  return text;
}
std::span<const float> row_of(const TensorView& logits, size_t row) {
  return {logits.row_as<float>(static_cast<int64_t>(row)), static_cast<size_t>(logits.cols())};
}
RunnerConfig config_of(int tp, DType kv, const std::optional<SequenceParallel>& sp = {}) {
  return {.tp = tp,
          .sp = sp,
          .cache = {.pages = 64, .page_size = 64, .pages_per_sequence = 4, .kv_dtype = kv}};
}
std::vector<int32_t> pages_of(size_t sequence) {
  const auto first = static_cast<int32_t>(4 * sequence);
  return {first, first + 1, first + 2, first + 3};
}

// All tokens of a text in one step.
void prefill(const Model& model, const DemoGolden& golden, int tp, DType kv, const OnRow& on_row,
             const std::optional<SequenceParallel>& sp = {}) {
  Runner runner(model, config_of(tp, kv, sp));
  for (const DemoCase& c : golden.cases) {
    Batch batch(64);
    batch.add(text_of(c), 0, pages_of(0), kTokens);
    const TensorView logits = runner.run(batch);
    for (size_t t = 0; t < kTokens; ++t) on_row(c, t, row_of(logits, t));
  }
}

// The continuation token by token, `together` texts in a step.
void decode(const Model& model, const DemoGolden& golden, int tp, DType kv, size_t together,
            const OnRow& on_row) {
  Runner runner(model, config_of(tp, kv));
  for (size_t first = 0; first < golden.cases.size(); first += together) {
    const auto group = std::span(golden.cases).subspan(first, together);
    for (size_t t = 0; t < kTokens; ++t) {
      Batch batch(64);
      for (size_t i = 0; i < group.size(); ++i) {
        const std::vector<int32_t> text = text_of(group[i]);
        const size_t end = group[i].ids.size() + t, begin = t == 0 ? 0 : end - 1;
        batch.add(std::span(text).subspan(begin, end - begin), static_cast<int64_t>(begin),
                  pages_of(i), 1);
      }
      const TensorView logits = runner.run(batch);
      for (size_t i = 0; i < group.size(); ++i) on_row(group[i], t, row_of(logits, i));
    }
  }
}

// What one rank finds token by token at each place: its two best tokens and their distance.
struct Place {
  size_t best = 0, second = 0;
  double lead = 0, deviation = 0;  // of all its logits

  explicit Place(std::span<const float> row) {
    const auto better = [&](size_t a, size_t b) { return row[a] > row[b]; };
    std::vector<size_t> order(row.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::ranges::partial_sort(order, order.begin() + 2, better);
    best = order[0];
    second = order[1];
    lead = lead_in(row);
    double sum = 0, squares = 0;
    for (const double x : row) {
      sum += x;
      squares += x * x;
    }
    const auto n = static_cast<double>(row.size());
    deviation = std::sqrt(squares / n - sum / n * (sum / n));
  }
  double lead_in(std::span<const float> row) const {
    return static_cast<double>(row[best]) - static_cast<double>(row[second]);
  }
};

// Ranks that divide a text's tokens.
const std::vector<std::pair<int, SequenceParallel>> kDivisions = {
    {3, {SpMode::ring, {}}},
    {4, {SpMode::torus, {.torus = 2, .ulysses = 2}}},
};

// One rank and several, prefill and decode, one text in a step and twelve: along the text that
// exact arithmetic generates the leads agree up to rounding, and the best token is the same, and
// that of exact arithmetic, wherever its lead is larger.
TEST_F(DemoTest, RanksAgreeUpToRounding) {
  const DemoGolden golden = load_demo_golden();
  ASSERT_EQ(golden.cases.size(), 12u);
  const Model& model = loaded_->model;
  for (const DType kv : {DType::f32, DType::f16}) {
    const double rounding = lead_rounding(model.config(), kv);
    std::map<std::pair<const DemoCase*, size_t>, Place> places;
    int decided = 0;
    decode(model, golden, 1, kv, 1, [&](const DemoCase& c, size_t t, std::span<const float> row) {
      const Place& place = places.emplace(std::pair{&c, t}, Place(row)).first->second;
      if (static_cast<double>(c.gaps[t]) <= kDeviations * rounding * place.deviation) return;
      ++decided;
      EXPECT_EQ(static_cast<int32_t>(place.best), c.greedy[t])
          << name(kv) << " cache, token " << t << " after '" << c.text << "', lead " << c.gaps[t];
    });
    RecordProperty(fmt::format("decided_{}", name(kv)), decided);
    EXPECT_GT(decided, 0.95 * 12 * kTokens) << "most tokens are not decided by rounding";

    const auto agree = [&](const std::string& what, const auto& run) {
      double squares = 0, largest = 0;
      run([&](const DemoCase& c, size_t t, std::span<const float> row) {
        const Place& place = places.at({&c, t});
        const double bound = kDeviations * rounding * place.deviation;
        const double moved = std::abs(place.lead_in(row) - place.lead);
        squares += std::pow(moved / place.deviation, 2);
        largest = std::max(largest, moved);
        EXPECT_LE(moved, bound) << what << ", token " << t << " after '" << c.text << "'";
        if (place.lead <= bound) return;
        EXPECT_EQ(std::ranges::max_element(row) - row.begin(), static_cast<int64_t>(place.best))
            << what << ", token " << t << " after '" << c.text << "', lead " << place.lead;
      });
      const double mean = std::sqrt(squares / static_cast<double>(places.size()));
      EXPECT_LE(mean, rounding) << what << ": more than rounding moves the leads";
      if (what.starts_with("decode_tp1")) {
        EXPECT_EQ(largest, 0) << "other texts in a step may not change a bit";
      }
      RecordProperty(what,
                     fmt::format("largest {:.4f}, rms {:.2e} of {:.2e}", largest, mean, rounding));
    };
    for (int tp : {1, 2, 3}) {
      agree(fmt::format("prefill_tp{}_{}", tp, name(kv)),
            [&](const OnRow& on_row) { prefill(model, golden, tp, kv, on_row); });
      if (kv != DType::f32) continue;  // once, where the bound is narrow
      agree(fmt::format("decode_tp{}_{}", tp, name(kv)),
            [&](const OnRow& on_row) { decode(model, golden, tp, kv, 12, on_row); });
    }
    if (kv == DType::f32) continue;  // the goldens' random models have such caches
    for (const auto& [ranks, sp] : kDivisions) {
      agree(fmt::format("prefill_{}{}_{}", to_string(*sp.mode), ranks, name(kv)),
            [&](const OnRow& on_row) { prefill(model, golden, ranks, kv, on_row, sp); });
    }
  }
}

// Against exact arithmetic one run rounds, and one token counts. The logits of this model deviate
// by 3.7 over the vocabulary.
double logprob_rounding(const ModelConfig& config) {
  return 3.7 * lead_rounding(config, DType::f16) / 2;
}

TEST_F(DemoTest, StaysCloseToExactArithmetic) {
  const DemoGolden golden = load_demo_golden();
  Generator generator(loaded_->model, loaded_->tokenizer, {.threads = 2});
  double sum = 0;
  int count = 0;
  for (const DemoCase& c : golden.cases) {
    SamplingParams sampling{.logprobs = 1000};
    const Generation g = generator.generate(
        {.prompt = c.ids, .max_tokens = 1, .sampling = sampling, .ignore_eos = true});
    for (size_t k = 0; k < 5; ++k) {  // of the likeliest
      for (const TokenLogprob& t : g.sampled[0].top) {
        if (t.id != c.top_ids[k]) continue;
        sum += std::abs(t.logprob - (c.top_logits[k] - c.log_sum_exp));
        ++count;
      }
    }
  }
  ASSERT_EQ(count, 60);
  RecordProperty("mean_logprob_difference", std::to_string(sum / count));
  EXPECT_LT(sum / count, logprob_rounding(loaded_->model.config()));
}

TEST_F(DemoTest, PerplexityIsThatOfExactArithmetic) {
  const DemoText text = load_demo_golden().text;
  const std::vector<int32_t> ids = loaded_->tokenizer.encode(text.text);
  ASSERT_EQ(std::ssize(ids), text.ids);
  const auto check = [&](const EngineConfig& config, const std::string& what) {
    Generator generator(loaded_->model, loaded_->tokenizer, config);
    double nll = 0, difference = 0;
    for (size_t i = 0; i < text.nll.size(); ++i) {
      const auto chunk =
          std::span(ids).subspan(i * static_cast<size_t>(text.ctx), static_cast<size_t>(text.ctx));
      const std::vector<double> scores = generator.score(chunk, text.ctx / 2);
      for (size_t t = 0; t < scores.size(); ++t) {
        nll -= scores[t];
        difference += std::abs(-scores[t] - static_cast<double>(text.nll[i][t]));
      }
    }
    const auto count = static_cast<double>(text.nll.size() * static_cast<size_t>(text.ctx / 2));
    const double perplexity = std::exp(nll / count);
    RecordProperty(what + "mean_logprob_difference", std::to_string(difference / count));
    RecordProperty(what + "perplexity", std::to_string(perplexity));
    const double rounding = logprob_rounding(loaded_->model.config());
    EXPECT_LT(difference / count, rounding) << what;
    EXPECT_NEAR(perplexity / text.perplexity, 1, kDeviations * rounding / std::sqrt(count)) << what;
  };
  check({.threads = 2}, "");
  check({.tp = 2, .sp = SequenceParallel{SpMode::torus, {.torus = 2}}, .threads = 1}, "torus_");
}

}  // namespace
}  // namespace braid::golden
