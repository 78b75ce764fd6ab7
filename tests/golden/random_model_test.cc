// The files that tests run on are, byte for byte, those that tools/make_goldens.py wrote through
// PyPI safetensors and gguf, and that Hugging Face computed the goldens from.
#include "golden/support/random_model.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "braid/base/error.h"
#include "golden/support/golden.h"

namespace braid::golden {
namespace {

namespace fs = std::filesystem;

class RandomModelTest : public testing::TestWithParam<std::string> {
 protected:
  RandomModelTest()
      : folder_(fs::temp_directory_path() / fmt::format("braid_{}_{}", GetParam(), getpid())) {
    fs::create_directories(folder_);
  }
  ~RandomModelTest() override { fs::remove_all(folder_); }

  const fs::path folder_;
};

TEST_P(RandomModelTest, SafetensorsFilesAreThoseOfTheScript) {
  const RandomModel model = load_random_model(GetParam());
  write_hf_folder(model, folder_);
  ASSERT_FALSE(model.files.empty());
  for (const auto& [name, checksum] : model.files) verify_checksum(folder_ / name, checksum);
}

TEST_P(RandomModelTest, GgufFilesAreThoseOfTheScript) {
  const RandomModel model = load_random_model(GetParam());
  ASSERT_EQ(model.gguf_forms().empty(), model.gguf.contains("none"));
  for (const std::string& form : model.gguf_forms()) {
    const fs::path path = folder_ / (form + ".gguf");
    write_gguf(model, form, path);
    verify_checksum(path, model.gguf_checksum(form));
  }
}

TEST_P(RandomModelTest, GoldensAreWhole) {
  const RandomModel model = load_random_model(GetParam());
  std::vector<std::string> forms = model.gguf_forms();
  forms.push_back("exact");
  for (const std::string& form : forms) {
    const Golden golden = load_golden(GetParam(), form);
    EXPECT_EQ(golden.format_error == 0, form == "exact" || form == "f32");
    ASSERT_FALSE(golden.cases.empty());
    for (const Case& c : golden.cases) {
      ASSERT_EQ(std::ssize(c.last), golden.vocab);
      EXPECT_EQ(c.inner.size(), c.inner_positions.size() * golden.columns.size());
      EXPECT_EQ(c.greedy.size(), c.gaps.size());
      const auto best = std::max_element(c.last.begin(), c.last.end());
      EXPECT_EQ(best - c.last.begin(), c.greedy.front());
      EXPECT_NEAR(*best, c.greedy_logits.front(), 1e-4);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, RandomModelTest, testing::ValuesIn(random_model_names()),
                         [](const auto& info) { return info.param; });

TEST(DemoGolden, IsWhole) {
  const DemoGolden golden = load_demo_golden();
  EXPECT_EQ(golden.cases.size(), 12u);
  for (const DemoCase& c : golden.cases) {
    EXPECT_EQ(c.ids.size(), 48u);
    EXPECT_EQ(c.greedy.size(), 48u);
    EXPECT_EQ(c.gaps.size(), 48u);
    ASSERT_EQ(c.top_ids.size(), c.top_logits.size());
    EXPECT_EQ(c.greedy[0], c.top_ids[0]);
    EXPECT_NEAR(c.gaps[0], c.top_logits[0] - c.top_logits[1], 2e-3);
    EXPECT_GT(c.log_sum_exp, c.top_logits[0]);
  }
  const DemoText& text = golden.text;
  ASSERT_EQ(text.nll.size(), static_cast<size_t>(text.ids / text.ctx));
  for (size_t i = 0; i < text.nll.size(); ++i) {
    ASSERT_EQ(std::ssize(text.nll[i]), text.ctx / 2);
    const double sum = std::accumulate(text.nll[i].begin(), text.nll[i].end(), 0.0);
    EXPECT_NEAR(std::exp(sum / static_cast<double>(text.nll[i].size())), text.chunk_perplexity[i],
                1e-4);
  }
}

TEST(Checksum, CatchesOneWrongBit) {
  const fs::path path = fs::temp_directory_path() / fmt::format("braid_bit_{}", getpid());
  const RandomModel model = load_random_model("llama2_mha");
  write_gguf(model, "f32", path);
  std::FILE* file = std::fopen(path.c_str(), "r+b");
  ASSERT_NE(file, nullptr);
  std::fseek(file, -100, SEEK_END);
  const int byte = std::fgetc(file);
  std::fseek(file, -1, SEEK_CUR);
  std::fputc(byte ^ 1, file);
  std::fclose(file);
  EXPECT_THROW(verify_checksum(path, model.gguf_checksum("f32")), Error);
  fs::remove(path);
}

}  // namespace
}  // namespace braid::golden
