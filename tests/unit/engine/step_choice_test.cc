// The choice of how ranks divide a network's step, from a profile.
#include "braid/engine/diffusion/step_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "braid/engine/diffusion/flux_transformer.h"

namespace braid {
namespace {

constexpr int64_t kHeads = 4;

Program step() {
  FluxConfig config{.in_channels = 16,
                    .blocks = 1,
                    .single_blocks = 1,
                    .heads = kHeads,
                    .head_dim = 64,
                    .rope_dims = {16, 24, 24}};
  return flux_step(
      config, {.text = 64, .image = 960}, [](std::string_view) { return DType::bf16; },
      DType::bf16);
}

StepChoice choose(const RankRequest& request) {
  return choose_step(request, kHeads, step(), FluxTransformer::row_parts(), nullptr);
}

TEST(StepChoice, ANamedModeIsTaken) {
  const StepChoice choice =
      choose({.sp = {SpMode::usp}, .topology = {.machines = 2, .devices = 2}, .profile = {}});
  EXPECT_EQ(choice.mesh.mode, SpMode::usp);
  EXPECT_EQ(choice.schedule, "sequence_parallel");
  EXPECT_TRUE(choice.priced.empty());
}

TEST(StepChoice, AutoTakesTheLeastPrice) {
  Profile slow = load_profile("h100");
  slow.cluster_link = {1e8, 1e-5};  // whatever crosses machines decides
  const RankRequest request{
      .sp = {}, .topology = {.machines = 2, .devices = 2}, .schedule = "auto", .profile = slow};
  const StepChoice choice = choose(request);
  ASSERT_GT(choice.priced.size(), 8u);
  double least = 1e9;
  std::string best;
  for (const std::string& line : choice.priced) {
    const double ms = std::stod(line.substr(line.rfind(": ") + 2));
    if (ms < least) least = ms, best = line;
  }
  EXPECT_THAT(best,
              testing::StartsWith(fmt::format("{}, {}, {}", to_string(choice.mesh.mode),
                                              to_string(choice.mesh.degrees), choice.schedule)));
}

TEST(StepChoice, AutoNeedsAProfileAndALegalMesh) {
  const auto refused = [](const RankRequest& request) -> std::string {
    try {
      choose(request);
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::kInvalidArgument);
      return e.what();
    }
    return "no error";
  };
  EXPECT_THAT(refused({.sp = {}, .topology = {.machines = 1, .devices = 2}, .profile = {}}),
              testing::HasSubstr("needs a profile"));
  EXPECT_THAT(refused({.sp = {.degrees = {.ulysses = 3}},
                       .topology = {.machines = 1, .devices = 2},
                       .profile = load_profile("h100")}),
              testing::HasSubstr("ulysses degree 3"));
}

}  // namespace
}  // namespace braid
