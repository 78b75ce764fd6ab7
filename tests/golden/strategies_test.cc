// Every strategy gives what `sequential` gives, on every family, rank count and shape of batch.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <optional>

#include "braid/engine/runner.h"
#include "braid/schedule/strategies/registry.h"
#include "golden/support/random_model.h"

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

  Runner runner(int tp, const std::string& schedule) const {
    return Runner(*model_, {.tp = tp,
                            .cache = {.pages = 5 * kPagesEach,
                                      .page_size = kPageSize,
                                      .pages_per_sequence = kPagesEach,
                                      .kv_dtype = DType::f32},
                            .schedule = schedule});
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

double largest(const std::vector<float>& x) {
  double most = 0;
  for (float v : x) most = std::max(most, std::abs(static_cast<double>(v)));
  return most;
}

TEST_P(StrategiesTest, GiveTheLogitsOfSequential) {
  const int most = static_cast<int>(std::min<int64_t>(model_->config().Hq, 4));
  for (int tp = 1; tp <= most; ++tp) {
    const std::vector<float> expected = logits(runner(tp, "sequential"));
    for (const std::string& name : strategy_names()) {
      SCOPED_TRACE(fmt::format("{} on {} ranks", name, tp));
      const std::vector<float> got = logits(runner(tp, name));
      ASSERT_EQ(got.size(), expected.size());
      double worst = 0;
      for (size_t i = 0; i < got.size(); ++i) {
        worst = std::max(worst, std::abs(static_cast<double>(got[i]) - expected[i]));
      }
      RecordProperty(fmt::format("{}_{}", name, tp), fmt::format("{}", worst));
      EXPECT_LE(worst, 1e-5 * largest(expected)) << "bitwise: " << (worst == 0);
      if (worst != 0) printf("%s tp %d: %g of %g\n", name.c_str(), tp, worst, largest(expected));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, StrategiesTest, testing::ValuesIn(random_model_names()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace braid::golden
