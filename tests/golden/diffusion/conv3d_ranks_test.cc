// Causal convolutions with steps over ranks that divide the rows of every frame: as on one rank.
#include <gtest/gtest.h>

#include "braid/engine/diffusion/network.h"
#include "braid/engine/diffusion/random_source.h"
#include "braid/engine/diffusion/torch_generator.h"
#include "braid/ops/conv3d.h"
#include "braid/parallel/picture_parallel.h"
#include "golden/diffusion/differences.h"

namespace braid::golden {
namespace {

constexpr int64_t kFrames = 3, kHeight = 9, kWidth = 4, kChannels = 5;

// Frames and pixels twice but for the first frame, then every second frame.
Program program() {
  Builder b("steps", {});
  const ValueId x = b.input("latents", {DType::f32, {kFrames * kHeight * kWidth, kChannels}});
  const ValueId more =
      ops::conv3d(b, {.x = x, .w = b.weight("up", {DType::f32, {7, kChannels, 3, 3, 3}})},
                  {.height = kHeight,
                   .width = kWidth,
                   .padding = 1,
                   .upsample = 2,
                   .frame_upsample = 2,
                   .first_once = true});
  const ValueId fewer =
      ops::conv3d(b, {.x = more, .w = b.weight("down", {DType::f32, {2, 7, 3, 3, 3}})},
                  {.height = 2 * kHeight, .width = 2 * kWidth, .padding = 1, .frame_stride = 2});
  return b.finish({fewer});
}

std::vector<float> result(const WeightSource& weights, int ranks) {
  NetworkConfig config{.threads = 1};
  if (ranks > 1) config.mesh = sequence_mesh(SpMode::ring, {.devices = ranks}, ranks);
  Network network("steps", weights, config);
  BoundNetwork& bound = network.plan("one", program, [&](const Program& whole) {
    return ranks == 1 ? LayoutPlan{} : picture_parallel(whole, {"latents"}, kHeight, kWidth, ranks);
  });
  std::vector<float> latents(kFrames * kHeight * kWidth * kChannels);
  TorchGenerator(5).normals(latents);
  bound.write("latents", latents, kFrames);
  bound.run();
  const auto made = bound.output(0, kFrames);
  return {made.begin(), made.end()};
}

TEST(Conv3dRanks, StepsEqualOneRank) {
  const Program whole = program();
  const RandomSource weights("steps", {&whole, 1}, 1);
  const std::vector<float> alone = result(weights, 1);
  EXPECT_EQ(alone.size(), kFrames * 4 * kHeight * kWidth * 2);
  for (const int ranks : {2, 3, 5}) {
    EXPECT_LE(worst_difference(result(weights, ranks), alone), 1e-6) << ranks << " ranks";
  }
}

}  // namespace
}  // namespace braid::golden
