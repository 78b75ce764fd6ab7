#include "braid/kernels/cuda/comm/push_config.h"

#include <gtest/gtest.h>

namespace braid::cuda {
namespace {

TEST(PushConfig, KernelsTakeWhatNothingComputesBeside) {
  constexpr int kSms = 132;
  const PushDesc small{.pieces = 1, .bytes = 1 << 20};
  EXPECT_EQ(to_string(choose(small, kSms)), "16 CTAs");
  EXPECT_EQ(choose({.pieces = 1, .bytes = 1}, kSms).ctas, 1);
  EXPECT_EQ(choose({.pieces = 9, .bytes = 128 << 20}, kSms).ctas, kSms);
  EXPECT_EQ(choose({.pieces = 6, .bytes = 24 << 10}, kSms).ctas, 6) << "a CTA for each piece";
  for (const auto& spoil :
       {+[](PushDesc& d) { d.computes_beside = true; },
        +[](PushDesc& d) { d.across_machines = true; }, +[](PushDesc& d) { d.words = false; },
        +[](PushDesc& d) { d.pieces = 0; }, +[](PushDesc& d) { d.pieces = kMaxPushPieces + 1; }}) {
    PushDesc desc = small;
    spoil(desc);
    EXPECT_EQ(to_string(choose(desc, kSms)), "copy engines");
  }
}

}  // namespace
}  // namespace braid::cuda
