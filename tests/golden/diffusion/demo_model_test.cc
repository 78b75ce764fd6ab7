// The committed demo model draws what diffusers' own pipeline draws from the same folder.
#include <gtest/gtest.h>

#include "braid/engine/diffusion/flux_pipeline.h"
#include "golden/diffusion/case.h"

namespace braid::golden {
namespace {

TEST(DemoModel, PicturesAreThoseOfDiffusers) {
  const nlohmann::json cases = diffusion_json("demo_cases.json");
  const SafetensorsFile golden(diffusion_golden("demo.safetensors"));
  FluxPipeline pipeline(std::string(BRAID_TEST_DATA) + "/../models/demo-image", {.threads = 2});
  size_t number = 0;
  for (const auto& c : cases) {
    const auto latents = tensor<float>(golden, fmt::format("latents.{}", number));
    const auto pixels = tensor<int32_t>(golden, fmt::format("pixels.{}", number));
    ++number;
    const std::vector<std::string> prompts = c.at("prompts");
    const size_t values = latents.size() / prompts.size(), bytes = pixels.size() / prompts.size();
    for (size_t i = 0; i < prompts.size(); ++i) {
      SCOPED_TRACE(prompts[i]);
      ImageRequest request{.prompt = prompts[i],
                           .width = c.at("width"),
                           .height = c.at("height"),
                           .steps = c.at("steps"),
                           .guidance = c.at("guidance"),
                           .text_tokens = c.at("text"),
                           .seed = c.at("seeds")[i]};
      std::vector<float> last;
      request.on_latents = [&](int64_t, int64_t, std::span<const float> step) {
        last.assign(step.begin(), step.end());
      };
      std::vector<uint8_t> made;
      request.on_image = [&](int64_t, const RgbImage& image) { made = image.pixels; };
      EXPECT_TRUE(pipeline.generate(request).complete);
      ASSERT_EQ(last.size(), values);
      ASSERT_EQ(made.size(), bytes);
      for (size_t n = 0; n < values; ++n) {
        ASSERT_NEAR(last[n], latents[(i * values) + n], 1e-4) << "latent " << n;
      }
      for (size_t n = 0; n < bytes; ++n) {
        ASSERT_NEAR(made[n], pixels[(i * bytes) + n], 1) << "byte " << n;
      }
    }
  }
}

}  // namespace
}  // namespace braid::golden
