// --sp auto for pictures: how ranks divide Flux's steps by simulated times.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "braid/engine/diffusion/flux_pipeline.h"
#include "golden/diffusion/case.h"
#include "golden/diffusion/differences.h"

namespace braid::golden {
namespace {

// Latents of all steps, without a picture.
std::vector<float> latents_of(FluxPipeline& pipeline) {
  ImageRequest request{.prompt = "a small cat",
                       .width = 40,
                       .height = 24,
                       .steps = 2,
                       .guidance = 3.5,
                       .text_tokens = 9,
                       .seed = 3};
  std::vector<float> all;
  request.on_latents = [&](int64_t, int64_t, std::span<const float> latents) {
    all.insert(all.end(), latents.begin(), latents.end());
  };
  request.on_progress = [](const PipelineProgress& p) {
    return p.stage != PipelineProgress::Stage::decode;
  };
  pipeline.generate(request);
  return all;
}

// The mode, degrees, schedule and text rows of the least price are taken, and the latents are those
// of one rank.
TEST(FluxAuto, TakesTheLeastPriceAndEqualsOneRank) {
  for (const char* kind : {"guided", "fast"}) {
    FluxPipeline alone(tiny_pipeline(kind), {.threads = 1});
    const std::vector<float> want = latents_of(alone);
    const auto [low, high] = std::ranges::minmax(want);
    for (const Topology& topology :
         {Topology{.machines = 1, .devices = 2}, {2, 1}, {1, 3}, {2, 2}}) {
      SCOPED_TRACE(fmt::format("{}, {}", kind, to_string(topology)));
      FluxPipeline chosen(tiny_pipeline(kind), {.threads = 1,
                                                .choose_sp = true,
                                                .text = std::nullopt,
                                                .topology = topology,
                                                .schedule = "auto",
                                                .profile = load_profile("h100")});
      ASSERT_GT(chosen.priced().size(), 3u);
      std::string best;
      double least = std::numeric_limits<double>::infinity();
      for (const std::string& line : chosen.priced()) {
        const double ms = std::stod(line.substr(line.rfind(": ") + 2));
        if (ms < least) least = ms, best = line;
      }
      const SequenceMesh& mesh = chosen.mesh().value();
      EXPECT_EQ(mesh.ranks(), topology.ranks());
      EXPECT_THAT(best,
                  testing::StartsWith(fmt::format("{}, {}, {}", to_string(mesh.mode),
                                                  to_string(mesh.degrees), chosen.schedule())));
      EXPECT_EQ(best.find("text replicated") != best.npos,
                chosen.text_rows() == TextRows::replicated);
      EXPECT_LE(worst_difference(latents_of(chosen), want), 1e-5 * std::max(-low, high));
    }
  }
}

}  // namespace
}  // namespace braid::golden
