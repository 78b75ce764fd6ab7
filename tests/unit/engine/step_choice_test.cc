// The choice of how ranks divide a network's step, from a profile.
#include "braid/engine/diffusion/step_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "braid/engine/absent_gpu.h"
#include "braid/engine/diffusion/cfg_groups.h"
#include "braid/engine/diffusion/flux_transformer.h"
#include "braid/engine/diffusion/step_prices.h"

namespace braid {
namespace {

constexpr int64_t kHeads = 4;

Program step(TextRows text = TextRows::split) {
  FluxConfig config{.in_channels = 16,
                    .blocks = 1,
                    .single_blocks = 1,
                    .heads = kHeads,
                    .head_dim = 64,
                    .rope_dims = {16, 24, 24}};
  return flux_step(
      config, {.text = 64, .image = 960, .apart = text == TextRows::replicated},
      [](std::string_view) { return DType::bf16; }, DType::bf16);
}

StepForm form(TextRows text = TextRows::split) {
  return {text, step(text), FluxTransformer::row_parts(text)};
}

StepChoice choose(const RankRequest& request) {
  const StepForm split = form();
  return choose_step(request, kHeads, {&split, 1}, nullptr);
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

// Text is replicated where transfers of its keys cost more than its linears on each rank.
TEST(StepChoice, AutoPricesTextRows) {
  const StepForm forms[] = {form(TextRows::split), form(TextRows::replicated)};
  Profile profile = load_profile("h100");
  for (const double bytes_per_second : {1e8, 1e13}) {
    profile.cluster_link = {bytes_per_second, 0};
    const RankRequest request{
        .sp = {SpMode::ring}, .topology = {.machines = 2, .devices = 1}, .profile = profile};
    const StepChoice choice = choose_step(request, kHeads, forms, nullptr);
    EXPECT_EQ(choice.text, bytes_per_second < 1e9 ? TextRows::replicated : TextRows::split);
    EXPECT_THAT(choice.priced,
                testing::ElementsAre(
                    testing::MatchesRegex("ring, .*, sequence_parallel: .* ms"),
                    testing::MatchesRegex("ring, .*, sequence_parallel, text replicated: .* ms")));
  }
  EXPECT_THROW(choose_step({.sp = {SpMode::ring}, .topology = {1, 2}, .profile = {}}, kHeads, forms,
                           nullptr),
               Error);
}

// A table of simulated steps and `auto` have one price for one request.
TEST(StepChoice, AutoHasThePricesOfSteps) {
  const Profile profile = load_profile("h100");
  for (const Topology& topology :
       {Topology{.machines = 4, .devices = 1, .cluster_link = {12.5e9, 0}, .emulated = true},
        Topology{.machines = 1, .devices = 4}}) {
    const RankRequest request{.sp = {}, .topology = topology, .profile = profile};
    const StepChoice choice = choose(request);
    const StepPrices prices(profile, topology, nullptr);
    const auto seconds = [&](const SequenceMesh& mesh) {
      return prices.seconds(
          prices.plan(step(), FluxTransformer::row_parts(), mesh, "sequence_parallel"));
    };
    EXPECT_EQ(seconds(choice.mesh), choice.seconds);
    double least = 1e9;
    for (SpMode mode : kSpModes) {
      for (const SequenceMesh& mesh : sequence_meshes(mode, topology, kHeads)) {
        least = std::min(least, seconds(mesh));
      }
    }
    EXPECT_EQ(least, choice.seconds);
    EXPECT_EQ(seconds(choice.mesh), choice.seconds) << "again";
  }
}

// Kernels of Hopper wait for keys inside of torus attention; older kernels are cut into calls.
TEST(StepChoice, AbsentGpusHaveTheirKernels) {
  const Topology machines{.machines = 2, .devices = 1};
  const auto launches = [&](const Profile& profile) {
    const auto kernels = kernels_of_absent_gpu(profile);
    const StepPrices prices(profile, machines, kernels.get());
    const auto plan =
        prices.plan(step(), FluxTransformer::row_parts(),
                    sequence_mesh(SpMode::torus, machines, kHeads), "sequence_parallel");
    return std::pair(kernels != nullptr, plan.schedules[0].num_launches());
  };
  Profile hopper = load_profile("h200"), older = hopper, cpu = hopper;
  older.name = "a100", older.device = "an H2000";
  cpu.shared_units = true;
  EXPECT_FALSE(launches(cpu).first);
  EXPECT_EQ(launches(older).second, launches(cpu).second);
  if (launches(hopper).first) {
    EXPECT_LT(launches(hopper).second, launches(older).second);
  }
}

// Machines of a group that neither lie in one rack nor fill racks count as racks of their own.
TEST(StepChoice, GroupsOfGuidanceKnowTheirRacks) {
  const auto group = [](const char* all) { return sizes_of(cfg_group(parse_topology(all), 2)); };
  EXPECT_EQ(group("2x4"), "1x4");
  EXPECT_EQ(group("3x4"), "3x2");
  EXPECT_EQ(group("2x2x4"), "2x4");
  EXPECT_EQ(group("4x1x4"), "2x1x4");
  EXPECT_EQ(group("3x1x4"), "3x1x2");
  EXPECT_EQ(group("3x2x4"), "3x1x4");
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
