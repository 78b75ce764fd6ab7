// The program as a job with a process per GPU, beside threads of one process.
#include <cstdlib>

#include "cli/job_program.h"

namespace braid::golden {
namespace {

using nlohmann::json;
using testing::HasSubstr;

class GpuJobTest : public JobCliTest {
 protected:
  void SetUp() override {
    JobCliTest::SetUp();
    unsetenv("CUDA_VISIBLE_DEVICES");
    if (braid("--version").out.find("cuda:1 ") == std::string::npos) {
      GTEST_SKIP() << "fewer than two GPUs";
    }
    const std::vector<Outcome> first = job(2, {tokens("--tp 2 --device cuda -n 1")});
    if (first[0].err.find("needs NVSHMEM") != std::string::npos) GTEST_SKIP() << first[0].err;
  }

  // A prompt of 40 tokens, whose answer crosses a page of the KV cache.
  static std::string tokens(const std::string& more) {
    std::string ids = "3";
    for (int i = 1; i < 40; ++i) ids += fmt::format(",{}", 3 + i * 7 % 50);
    return fmt::format("run -m {} --prompt-ids {} -n 60 --json --ignore-eos --logprobs 3 {}",
                       gguf(), ids, more);
  }

  // Each process sees a GPU, named by `first` and `second`.
  static std::vector<Outcome> job_of_seen(const char* first, const char* second,
                                          const std::string& arguments) {
    setenv("CUDA_VISIBLE_DEVICES", first, 1);
    const std::vector<Outcome> outcomes = job(
        2, {arguments}, {.process = 1, .words = fmt::format("CUDA_VISIBLE_DEVICES={}", second)});
    unsetenv("CUDA_VISIBLE_DEVICES");
    return outcomes;
  }

  static void expect_same(const std::vector<Outcome>& several, const Outcome& one) {
    ASSERT_EQ(one.status, 0) << one.err;
    for (size_t r = 0; r < several.size(); ++r) {
      ASSERT_EQ(several[r].status, 0) << several[r].err;
      EXPECT_EQ(r > 0 ? several[r].out : "", "");
    }
    json want = json::parse(one.out), got = json::parse(several[0].out);
    for (const char* key : {"output_ids", "text", "logprobs"}) EXPECT_EQ(got[key], want[key]);
  }
};

TEST_F(GpuJobTest, AnswersAreThoseOfThreads) {
  for (const char* more :
       {"--tp 2", "--tp 2 --temperature 0.9 --seed 3 --repetition-penalty 1.2",
        "--tp 2 --schedule tokenweave", "--sp ring --ranks 2", "--sp ulysses --ranks 2"}) {
    SCOPED_TRACE(more);
    expect_same(job(2, {tokens(std::string(more) + " --device cuda")}),
                braid(tokens(std::string(more) + " --device cuda:0,1")));
  }
}

TEST_F(GpuJobTest, OneVisibleGpuForEachProcess) {
  expect_same(job_of_seen("1", "0", tokens("--tp 2 --device cuda")),
              braid(tokens("--tp 2 --device cuda:0,1")));
}

TEST_F(GpuJobTest, ASharedGpuIsRefusedInOneLine) {
  const std::vector<Outcome> both = job_of_seen("0", "0", tokens("--tp 2 --device cuda"));
  for (const Outcome& o : both) EXPECT_EQ(o.status, 2) << o.err;
  EXPECT_THAT(both[0].err, HasSubstr("have the same GPU"));
  EXPECT_EQ(both[1].err, "");
}

TEST_F(GpuJobTest, MoreProcessesThanGpusAreRefused) {
  const std::vector<Outcome> outcomes = job(9, {tokens("--tp 9 --device cuda")});
  EXPECT_NE(outcomes[0].status, 0);
  EXPECT_THAT(outcomes[0].err, HasSubstr("wants cuda:"));
}

TEST_F(GpuJobTest, AMissingLibraryNamesThePackage) {
  const std::vector<Outcome> outcomes =
      job(2, {tokens("--tp 2 --device cuda")}, {.process = 1, .words = "NVSHMEM_HOME=/nowhere"});
  EXPECT_EQ(outcomes[1].status, 1);
  EXPECT_THAT(outcomes[1].err, HasSubstr("pip install nvidia-nvshmem-cu"));
  EXPECT_EQ(outcomes[0].status, 1);
  EXPECT_THAT(outcomes[0].err, HasSubstr("since rank 1 on"));
}

}  // namespace
}  // namespace braid::golden
