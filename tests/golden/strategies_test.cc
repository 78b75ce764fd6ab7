// Every strategy gives what `sequential` gives, on every family, rank count and shape of batch.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <optional>

#include "braid/engine/runner.h"
#include "braid/schedule/strategies/registry.h"
#include "golden/support/random_model.h"
#include "unit/schedule/joined_halves.h"

namespace braid::golden {
namespace {

constexpr int64_t kPageSize = 16;
constexpr int64_t kPagesEach = 8;  // of a sequence

// A sequence's steps, so that every runner can be led the same way.
struct Piece {
  int sequence = 0;
  int64_t tokens = 1;
  int64_t scored = 1;
};
using Steps = std::vector<std::vector<Piece>>;

// Prompts, chunks of prompts and decodes, mixed; sizes that divide by nothing.
const Steps kSteps = {
    {{0, 1, 1}},                                    // one token
    {{0, 2, 2}},                                    // as many as micro-batches
    {{1, 37, 37}},                                  // a prompt that is cut inside
    {{0, 1, 1}, {1, 1, 1}, {2, 21, 1}},             // two decodes and a prompt
    {{2, 5, 5}, {0, 1, 1}, {3, 63, 0}, {1, 1, 1}},  // a chunk whose logits nobody wants
    {{3, 33, 33}, {4, 68, 1}},                      // enough for strategies that cut in whole tiles
    {{0, 1, 1}, {1, 1, 1}, {2, 1, 1}, {3, 1, 1}, {4, 1, 1}},
};

class StrategiesTest : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() /
              fmt::format("braid_strategies_{}_{}", GetParam(), getpid());
    std::filesystem::create_directories(folder_);
    write_hf_folder(load_random_model(GetParam()), folder_);
    model_.emplace(folder_.string());
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  Runner runner(int tp, const std::string& schedule, const std::optional<SequenceParallel>& sp = {},
                int ep = 1, int dp = 1, std::shared_ptr<const OpScheduler> own = nullptr) const {
    return Runner(*model_, {.tp = tp,
                            .ep = ep,
                            .dp = dp,
                            .sp = sp,
                            .cache = {.pages = 5 * kPagesEach,
                                      .page_size = kPageSize,
                                      .pages_per_sequence = kPagesEach,
                                      .kv_dtype = DType::f32},
                            .schedule = schedule,
                            .strategy = std::move(own)});
  }

  // Logits of all scored rows of all steps.
  std::vector<float> logits(Runner runner) const {
    std::vector<float> all;
    std::vector<int64_t> cached(5, 0);
    Batch batch(kPageSize);
    for (const std::vector<Piece>& step : kSteps) {
      batch.clear();
      int64_t rows = 0;
      for (const Piece& piece : step) {
        std::vector<int32_t> tokens, pages;
        int64_t& at = cached[static_cast<size_t>(piece.sequence)];
        for (int64_t i = 0; i < piece.tokens; ++i) {
          tokens.push_back(
              static_cast<int32_t>((piece.sequence * 31 + (at + i) * 17 + 5) % model_->config().V));
        }
        for (int64_t p = 0; p < kPagesEach; ++p) {
          pages.push_back(static_cast<int32_t>((p * 5) + piece.sequence));
        }
        batch.add(tokens, at, pages, piece.scored);
        at += piece.tokens;
        rows += piece.scored;
      }
      const TensorView out = runner.run(batch);
      EXPECT_EQ(out.shape[0], rows);
      all.insert(all.end(), out.as<float>(), out.as<float>() + (rows * out.cols()));
    }
    return all;
  }

  std::filesystem::path folder_;
  std::optional<Model> model_;
};

double standard_deviation(const std::vector<float>& x) {
  double sum = 0, squares = 0;
  for (const double v : x) sum += v, squares += v * v;
  const auto n = static_cast<double>(x.size());
  return std::sqrt(squares / n - sum / n * (sum / n));
}

// Dividing a batch changes which rows a kernel sees together, and so the order in which it adds the
// products of a sum, F of them at most. Independent errors of 2^-24 add up to sqrt(F) of them in
// each of five products and the attention of a layer, and in the head; two runs differ by sqrt(2)
// as much. Six deviations, relative to that of the logits.
double order_tolerance(const ModelConfig& c) {
  const auto sums = static_cast<double>((6 * c.layers) + 1);
  return 6 * 0x1p-24 * std::sqrt(2 * sums * static_cast<double>(std::max(c.F, c.C)));
}

double distance(const std::vector<float>& got, const std::vector<float>& expected) {
  if (got.size() != expected.size()) return INFINITY;
  double worst = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    worst = std::max(worst, std::abs(static_cast<double>(got[i]) - expected[i]));
  }
  return worst;
}

// Ranks that divide a sequence's tokens: steps of one sequence over all of them, in one order or
// another, the rest on rank 0.
TEST_P(StrategiesTest, GiveTheLogitsOfOneRankWhereTokensAreDivided) {
  if (model_->config().latent) {
    EXPECT_THROW(logits(runner(2, "sequential", SequenceParallel{SpMode::ring, {}})), Error);
    return;
  }
  const std::vector<float> expected = logits(runner(1, "sequential"));
  const double tolerance = order_tolerance(model_->config()) * standard_deviation(expected);
  std::vector<std::string> names = strategy_names();
  names.emplace_back("sequence_parallel");
  const int most = static_cast<int>(std::min<int64_t>(model_->config().Hq, 3));
  for (SpMode mode : {SpMode::ring, SpMode::ulysses, SpMode::torus}) {
    for (const std::string& name : names) {
      SCOPED_TRACE(fmt::format("{} attention, {}", to_string(mode), name));
      SequenceParallel sp{mode, {}};
      if (mode == SpMode::torus) sp.degrees.torus = most;
      EXPECT_LE(distance(logits(runner(most, name, sp)), expected), tolerance);
    }
  }
}

TEST_P(StrategiesTest, GiveTheLogitsAndTokensOfSequential) {
  const int most = static_cast<int>(std::min<int64_t>(model_->config().Hq, 4));
  const auto V = static_cast<size_t>(model_->config().V);
  for (int tp = 1; tp <= most; ++tp) {
    const std::vector<float> expected = logits(runner(tp, "sequential"));
    const double tolerance = order_tolerance(model_->config()) * standard_deviation(expected);
    for (const std::string& name : strategy_names()) {
      SCOPED_TRACE(fmt::format("{} on {} ranks", name, tp));
      const std::vector<float> got = logits(runner(tp, name));
      ASSERT_EQ(got.size(), expected.size());
      if (name == "sequential" || name == "gemm_collective") {  // the same sums in the same order
        EXPECT_EQ(std::memcmp(got.data(), expected.data(), got.size() * sizeof(float)), 0);
        continue;
      }
      double worst = 0;
      for (size_t row = 0; row < got.size(); row += V) {
        size_t best = 0;
        float second = -INFINITY;
        for (size_t i = 0; i < V; ++i) {
          worst = std::max(worst, std::abs(static_cast<double>(got[row + i]) - expected[row + i]));
          if (expected[row + i] > expected[row + best]) best = i;
        }
        for (size_t i = 0; i < V; ++i) {
          if (i != best) second = std::max(second, expected[row + i]);
        }
        const auto token = std::max_element(got.begin() + static_cast<ptrdiff_t>(row),
                                            got.begin() + static_cast<ptrdiff_t>(row + V)) -
                           got.begin() - static_cast<ptrdiff_t>(row);
        if (expected[row + best] - second > 2 * tolerance) {
          EXPECT_EQ(token, best) << "row " << row / V;
        }
      }
      EXPECT_LE(worst, tolerance);
      RecordProperty(fmt::format("{}_tp{}", name, tp), fmt::format("{} of {}", worst, tolerance));
    }
  }
}

// Experts divided by number, in rows that are whole on all ranks or divided, too.
TEST_P(StrategiesTest, GiveTheLogitsOfOneRankWhereExpertsAreDivided) {
  if (!model_->config().experts) GTEST_SKIP() << "no experts";
  const std::vector<float> expected = logits(runner(1, "sequential"));
  const double tolerance = order_tolerance(model_->config()) * standard_deviation(expected);
  const int most = static_cast<int>(std::min<int64_t>(model_->config().Hq, 4));
  for (int ranks = 2; ranks <= most; ++ranks) {
    for (const std::string& name : strategy_names(ProgramKind::experts)) {
      for (int ep = 2; ep <= ranks; ++ep) {
        SCOPED_TRACE(fmt::format("{} on {} ranks, ep {}", name, ranks, ep));
        EXPECT_LE(distance(logits(runner(ranks, name, {}, ep)), expected), tolerance);
      }
    }
  }
}

// Sequences dealt to groups of ranks, some of which have none in a step; experts divided over all.
TEST_P(StrategiesTest, GiveTheLogitsOfOneRankWhereSequencesAreDealt) {
  const std::vector<float> expected = logits(runner(1, "sequential"));
  const double tolerance = order_tolerance(model_->config()) * standard_deviation(expected);
  struct Ranks {
    int dp, tp, ep;
  };
  std::vector<Ranks> cases = {{2, 1, 1}, {4, 1, 1}, {2, 2, 1}};
  if (model_->config().experts) {
    for (const Ranks& ranks :
         {Ranks{2, 1, 2}, Ranks{3, 1, 2}, Ranks{4, 1, 4}, Ranks{2, 2, 4}, Ranks{2, 2, 3}}) {
      cases.push_back(ranks);
    }
  }
  for (const Ranks& r : cases) {
    if (r.tp > model_->config().Hq) continue;
    const ProgramKind kind = r.ep > 1 ? ProgramKind::experts : ProgramKind::any;
    for (const std::string& name : strategy_names(kind)) {
      SCOPED_TRACE(fmt::format("{}, dp {}, tp {}, ep {}", name, r.dp, r.tp, r.ep));
      EXPECT_LE(distance(logits(runner(r.dp * r.tp, name, {}, r.ep, r.dp)), expected), tolerance);
    }
  }
}

// A strategy outside the library, whose fused ops join ops of both halves of a step.
TEST_P(StrategiesTest, GiveTheLogitsOfOneRankWhereOpsOfTwoHalvesAreJoined) {
  if (!model_->config().experts) GTEST_SKIP() << "no experts";
  const std::vector<float> expected = logits(runner(1, "sequential"));
  const double tolerance = order_tolerance(model_->config()) * standard_deviation(expected);
  const auto joined = std::make_shared<testing_schedule::JoinedHalves>();
  for (const int dp : {1, 2}) {
    SCOPED_TRACE(fmt::format("{} groups", dp));
    EXPECT_LE(distance(logits(runner(2, "", {}, 2, dp, joined)), expected), tolerance);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, StrategiesTest, testing::ValuesIn(random_model_names()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace braid::golden
