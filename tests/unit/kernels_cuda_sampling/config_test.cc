#include "braid/kernels/cuda/sampling/config.h"

#include <gtest/gtest.h>

#include "braid/base/error.h"
#include "braid/kernels/cuda/sampling/params.h"

namespace braid::cuda {
namespace {

constexpr SamplingDevice kHopper{};
constexpr SamplingDevice kAmpere{
    .compute_capability = 80, .num_sms = 108, .shared_bytes = 163 << 10};

TEST(SamplingConfig, SlicesCoverTheVocabularyAndFit) {
  for (const SamplingDevice& device : {kHopper, kAmpere}) {
    for (const int32_t vocab : {1, 31, 1000, 32000, 49152, 128256, 151936, 262144, kMaxVocab}) {
      for (const int32_t capacity : {1, 3, 32, 256}) {
        const SamplingDesc desc{vocab, capacity};
        const auto all = candidates(desc, device);
        ASSERT_FALSE(all.empty());
        for (const SamplingConfig& config : all) {
          const int64_t slice = slice_of(desc, config);
          EXPECT_EQ(slice % 32, 0);
          EXPECT_GE(slice * config.cluster, vocab) << to_string(config);
          EXPECT_LT((slice - 32) * config.cluster, vocab) << "no slice is a block too long";
          EXPECT_TRUE(device.compute_capability >= 90 || config.cluster == 1);
          if (config.staged) {
            EXPECT_LE(kSampleSharedBytes + 4 * static_cast<size_t>(slice),
                      static_cast<size_t>(device.shared_bytes));
            EXPECT_EQ(workspace_bytes(desc, config), 0u);
          } else {
            EXPECT_GE(workspace_bytes(desc, config), 4 * static_cast<size_t>(vocab) * capacity);
          }
        }
        const SamplingConfig best = choose(desc, device);
        for (const SamplingConfig& config : all) EXPECT_LE(best.cost_us, config.cost_us);
      }
    }
  }
}

TEST(SamplingConfig, LargeVocabulariesAreSharedAndSmallOnesAreNot) {
  EXPECT_GE(choose({128256, 1}, kHopper).cluster, 8);
  EXPECT_TRUE(choose({128256, 1}, kHopper).staged);
  EXPECT_EQ(choose({500, 1}, kHopper), choose({500, 1}, kHopper));
  EXPECT_EQ(choose({500, 1}, kHopper).cluster, 1);
  EXPECT_EQ(choose({128256, 1}, kAmpere).cluster, 1);
  EXPECT_EQ(to_string(SamplingConfig{.cluster = 8, .staged = true}), "cluster 8 staged");
  EXPECT_EQ(to_string(SamplingConfig{}), "cluster 1");
}

TEST(SamplingConfig, BadSizesAreNamed) {
  for (const SamplingDesc bad :
       {SamplingDesc{0, 1}, {-5, 1}, {kMaxVocab + 1, 1}, {10, 0}, {10, 100000}}) {
    EXPECT_THROW(candidates(bad, kHopper), Error);
  }
  try {
    candidates({0, 1}, kHopper);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::kInvalidArgument);
    EXPECT_NE(std::string(e.what()).find("vocabulary of 0"), std::string::npos) << e.what();
  }
}

}  // namespace
}  // namespace braid::cuda
