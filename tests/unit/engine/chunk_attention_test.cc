// Attention of a prompt's chunk over the heads of a GPU's rank, beside the profile's rate.
#include "braid/engine/trace/chunk_attention.h"

#include <gtest/gtest.h>

#include "braid/model/model_shape.h"

namespace braid {
namespace {

class ChunkAttentionTest : public ::testing::Test {
 protected:
  double beyond(int parts, int64_t tokens, int64_t cached) const {
    return ChunkAttention(model_, parts, 32, 132).beyond(profile_, tokens, cached);
  }
  // By the profile, all layers.
  double priced(int parts, int64_t tokens, int64_t cached) const {
    const double pairs = static_cast<double>(tokens) * (static_cast<double>(cached) + tokens / 2.0);
    return 32 * 4 * 4096.0 / parts * pairs / 620e12;
  }

  const Profile profile_ = load_profile("h200");
  const ModelConfig model_ =
      read_model_shape(std::string(BRAID_TEST_DATA) + "/../configs/llama-3-8b-1m.json").config;
};

// 32 heads of 512 tokens nearly fill 132 SMs; a quarter of these heads do not, whatever the kernel.
TEST_F(ChunkAttentionTest, FewHeadsDoNotFillAGpu) {
  EXPECT_LT(beyond(1, 512, 16384), 0.25 * priced(1, 512, 16384));
  EXPECT_GT(beyond(4, 512, 16384), 0.4 * priced(4, 512, 16384));
  EXPECT_GT(beyond(2, 128, 16384), 0.4 * priced(2, 128, 16384));
  // Many tokens fill it for any heads.
  EXPECT_LT(beyond(4, 8192, 16384), 0.15 * priced(4, 8192, 16384));
}

TEST_F(ChunkAttentionTest, OthersGetNoCorrection) {
  EXPECT_EQ(beyond(1, 1, 16384), 0) << "a token of an answer";
  ModelConfig windows = model_;
  windows.windows.assign(32, 4096);
  EXPECT_EQ(ChunkAttention(windows, 1, 32, 132).beyond(profile_, 512, 16384), 0);
  Profile no_rate = profile_;
  no_rate.rates.clear();
  EXPECT_EQ(ChunkAttention(model_, 2, 32, 132).beyond(no_rate, 512, 16384), 0);
}

}  // namespace
}  // namespace braid
