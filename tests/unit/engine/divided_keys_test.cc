// When GPUs keep keys apart: by the bytes of a layer's keys that each is spared.
#include "braid/engine/divided_keys.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "braid/model/model_shape.h"

namespace braid {
namespace {

ModelConfig config_of(const char* name) {
  return read_model_shape(fmt::format("{}/../configs/{}.json", BRAID_TEST_DATA, name)).config;
}

// The most slots with keys together.
int64_t most_together(const ModelConfig& config, int ranks, DType dtype = DType::bf16) {
  int64_t low = 0, high = int64_t{1} << 30;
  while (high - low > 1) {
    const int64_t slots = (low + high) / 2;
    (keys_apart(divided_keys(config, dtype, slots, ranks)) ? high : low) = slots;
  }
  return low;
}

TEST(DividedKeys, FewerBytesOfATokenAreTogetherLonger) {
  const ModelConfig llama = config_of("llama-3-8b-1m");
  EXPECT_EQ(divided_keys(llama, DType::bf16, 5, 2).layer_bytes, 4096);
  EXPECT_EQ(most_together(llama, 2), 131072);
  EXPECT_EQ(most_together(llama, 4), 87381) << "each of more ranks is spared more";
  EXPECT_EQ(most_together(llama, 8), 74898);
  EXPECT_EQ(most_together(llama, 2, DType::f32), 65536);
  EXPECT_EQ(most_together(config_of("glm-4-9b"), 2), 524288);
  EXPECT_EQ(most_together(config_of("glm-4-9b-1m"), 2), 262144);
  EXPECT_FALSE(keys_apart(divided_keys(llama, DType::bf16, int64_t{1} << 30, 1)));
}

TEST(DividedKeys, LayersWithAWindowAreReadInPartAnyway) {
  ModelConfig mixed = config_of("llama-3-8b-1m");
  for (size_t i = 0; i < mixed.windows.size(); i += 2) mixed.windows[i] = 4096;
  EXPECT_EQ(divided_keys(mixed, DType::bf16, 5, 2).layer_bytes, 2048);
  EXPECT_EQ(most_together(mixed, 2), 262144);
  std::ranges::fill(mixed.windows, 4096);
  EXPECT_EQ(divided_keys(mixed, DType::bf16, 5, 2).layer_bytes, 0);
}

// Two H200, Llama-3-8B's shape, ms a token behind so many keys: together on rank 0, and apart
// (docs/log/measurements.md). The times are equal at some 99,000 keys; the limit is a third beyond.
TEST(DividedKeys, TheLimitIsAThirdBeyondEqualTimes) {
  struct Row {
    double keys, together, apart;
  };
  constexpr Row kRows[] = {{32704, 4.43, 5.30}, {65472, 5.37, 5.79}, {130944, 7.24, 6.84}};
  const double before = kRows[1].apart - kRows[1].together;
  const double behind = kRows[2].together - kRows[2].apart;
  ASSERT_GT(before, 0);
  ASSERT_GT(behind, 0);
  const double equal = kRows[1].keys + (kRows[2].keys - kRows[1].keys) * before / (before + behind);
  const double limit = static_cast<double>(most_together(config_of("llama-3-8b-1m"), 2));
  EXPECT_NEAR(limit / equal, 4.0 / 3, 0.05);
}

}  // namespace
}  // namespace braid
