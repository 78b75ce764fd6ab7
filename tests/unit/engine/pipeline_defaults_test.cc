// The settings that diffusers' pipelines and the models' cards have for each model.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "braid/engine/diffusion/cogvideox_pipeline.h"
#include "braid/engine/diffusion/flux_pipeline.h"
#include "braid/engine/diffusion/pipeline_parts.h"

namespace braid {
namespace {

PipelineParts parts(const char* name) {
  return random_parts(fmt::format("{}/../configs/{}.json", BRAID_TEST_DATA, name));
}

void expect_flux(const FluxPipeline::Defaults& d, int64_t steps, double guidance, int64_t text) {
  EXPECT_EQ(d.size, 1024);
  EXPECT_EQ(d.steps, steps);
  EXPECT_EQ(d.guidance, guidance);
  EXPECT_EQ(d.text_tokens, text);
}

TEST(PipelineDefaults, Flux) {
  FluxConfig flux = read_flux_config(parts("flux-1-dev").transformer);
  expect_flux(FluxPipeline::defaults_of(flux, 8), 28, 3.5, 512);
  flux.guidance = false;  // schnell
  expect_flux(FluxPipeline::defaults_of(flux, 8), 4, 0, 256);
}

TEST(PipelineDefaults, CogVideoX) {
  struct Case {
    const char* name;
    int64_t width, height, frames, fps, text;
  };
  for (const Case& c : {Case{"cogvideox-2b", 720, 480, 49, 8, 226},
                        {"cogvideox-5b", 720, 480, 49, 8, 226},
                        {"cogvideox-1.5-5b", 1360, 768, 81, 16, 226}}) {
    SCOPED_TRACE(c.name);
    const CogVideoXPipeline::Defaults d =
        CogVideoXPipeline::defaults_of(read_cogvideox_config(parts(c.name).transformer), 8);
    EXPECT_EQ(d.width, c.width);
    EXPECT_EQ(d.height, c.height);
    EXPECT_EQ(d.frames, c.frames);
    EXPECT_EQ(d.fps, c.fps);
    EXPECT_EQ(d.steps, 50);
    EXPECT_EQ(d.guidance, 6);
    EXPECT_EQ(d.text_tokens, c.text);
  }
}

}  // namespace
}  // namespace braid
