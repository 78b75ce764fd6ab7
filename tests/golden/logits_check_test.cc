// LogitsCheck lets a step of a mixture in one place pass, and tells a fault of one prompt.
#include <gtest/gtest-spi.h>

#include <functional>

#include "golden/support/random_model.h"
#include "golden/support/rounding.h"

namespace braid::golden {
namespace {

// Failures where the logits of some places are wrong: the references' own, of three chunks.
int failures(const std::function<bool(size_t prompt, int chunk)>& wrong) {
  const Folder folder("logits_check");
  write_hf_folder(load_random_model("qwen3_moe"), folder.path());
  const Model model(folder.path().string());
  const Golden golden = load_golden("qwen3_moe");
  testing::TestPartResultArray results;
  {
    const testing::ScopedFakeTestPartResultReporter reporter(
        testing::ScopedFakeTestPartResultReporter::INTERCEPT_ONLY_CURRENT_THREAD, &results);
    LogitsCheck check(model, golden);
    for (size_t i = 0; i < golden.cases.size(); ++i) {
      const Rows right = rounded_logits(model, golden.cases[i].prompt);
      for (int chunk = 0; chunk < 3; ++chunk) {
        Rows rows = right;
        for (std::vector<float>& row : rows) {
          for (float& x : row) x *= wrong(i, chunk) ? 1.2f : 1;
        }
        check.expect(golden.cases[i], rows);
      }
    }
  }
  return results.size();
}

TEST(LogitsCheck, TellsAFaultAndLetsAStepPass) {
  EXPECT_EQ(failures([](size_t, int) { return false; }), 0);
  EXPECT_EQ(failures([](size_t prompt, int chunk) { return prompt == 2 && chunk == 1; }), 0);
  EXPECT_EQ(failures([](size_t prompt, int) { return prompt == 3; }), 1);
  EXPECT_EQ(failures([](size_t, int) { return true; }), 1);
}

}  // namespace
}  // namespace braid::golden
