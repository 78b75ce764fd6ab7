// A whole pipeline from prompts to pixels against diffusers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "golden/diffusion/flux_case.h"

namespace braid::golden {
namespace {

using testing::HasSubstr;

class PipelineCase : public testing::TestWithParam<DiffusionCase> {};

TEST_P(PipelineCase, PixelsMatchDiffusers) {
  const DiffusionCase& c = GetParam();
  FluxPipeline pipeline(tiny_pipeline(c.kind), {.threads = 2});
  for (size_t i = 0; i < c.prompts.size(); ++i) {
    SCOPED_TRACE(c.prompts[i]);
    const GoldenPicture want(c, i);
    const MadePicture made = make_picture(pipeline, c, i);
    EXPECT_TRUE(made.result.complete);
    EXPECT_THAT(made.result.remarks, testing::SizeIs(c.text == 1 ? 1 : 0));
    EXPECT_EQ(std::ssize(made.result.timings.step_ms), c.steps);
    EXPECT_LT(worst_difference(made.latents, want.latents), 1e-4);
    EXPECT_LE(worst_pixel(made.image, want.pixels), 1);
  }
}

INSTANTIATE_TEST_SUITE_P(Flux, PipelineCase, testing::ValuesIn(diffusion_cases()),
                         [](const auto& info) { return info.param.name; });

std::vector<std::vector<uint8_t>> pictures(FluxPipeline& pipeline, ImageRequest request) {
  std::vector<std::vector<uint8_t>> all;
  request.on_image = [&](int64_t, const RgbImage& image) { all.push_back(image.pixels); };
  pipeline.generate(request);
  return all;
}

TEST(FluxPipeline, SeedsOfSeveralImages) {
  FluxPipeline pipeline(tiny_pipeline("fast"), {.threads = 1});
  ImageRequest request{.prompt = "a cat",
                       .width = 16,
                       .height = 8,
                       .steps = 2,
                       .text_tokens = 8,
                       .seed = 5,
                       .images = 3};
  const auto each = pictures(pipeline, request);
  ASSERT_EQ(each.size(), 3u);
  ImageRequest alone = request;
  alone.seed = 6;
  alone.images = 1;
  EXPECT_EQ(pictures(pipeline, alone)[0], each[1]);
  request.one_generator = true;
  const auto batch = pictures(pipeline, request);
  EXPECT_EQ(batch[0], each[0]);
  EXPECT_NE(batch[1], each[1]);
}

TEST(FluxPipeline, RanksDrawTheSamePicture) {
  const ImageRequest request{.prompt = "a red box",
                             .width = 24,
                             .height = 40,
                             .steps = 2,
                             .guidance = 3.5,
                             .text_tokens = 9,
                             .seed = 1};
  FluxPipeline alone(tiny_pipeline("guided"), {.threads = 1});
  FluxPipeline divided(
      tiny_pipeline("guided"),
      {.threads = 1, .sp = SpMode::usp, .topology = {.machines = 2, .devices = 2}});
  const auto want = pictures(alone, request)[0], got = pictures(divided, request)[0];
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], want[i], 1);
}

TEST(FluxPipeline, ARepeatedPromptIsNotReadAgain) {
  FluxPipeline pipeline(tiny_pipeline("fast"), {.threads = 1});
  ImageRequest request{
      .prompt = "a cat", .width = 8, .height = 8, .steps = 1, .text_tokens = 8, .seed = 5};
  const auto first = pictures(pipeline, request);
  EXPECT_EQ(pipeline.generate(request).timings.encoders_ms, 0);
  EXPECT_EQ(pictures(pipeline, request), first);
  request.text_tokens = 9;
  EXPECT_GT(pipeline.generate(request).timings.encoders_ms, 0);
  request.prompt = "a dog";
  EXPECT_NE(pictures(pipeline, request), first);
}

TEST(FluxPipeline, EndsWhenItIsAskedTo) {
  FluxPipeline pipeline(tiny_pipeline("fast"), {.threads = 1});
  ImageRequest request{.prompt = "x", .width = 8, .height = 8, .steps = 5, .text_tokens = 4};
  int64_t steps = 0;
  request.on_progress = [&](const PipelineProgress& p) {
    return p.stage != PipelineProgress::Stage::step || ++steps <= 2;
  };
  EXPECT_FALSE(pipeline.generate(request).complete);
  EXPECT_EQ(steps, 3);
}

TEST(FluxPipeline, RefusesWhatIsOutOfRange) {
  FluxPipeline pipeline(tiny_pipeline("guided"), {.threads = 1});
  EXPECT_EQ(pipeline.unit(), 8);
  const auto refused = [&](auto&& change) -> std::string {
    ImageRequest request{.prompt = "x", .width = 16, .height = 16, .steps = 1, .text_tokens = 4};
    change(request);
    try {
      pipeline.generate(request);
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::kInvalidArgument);
      return e.what();
    }
    return "no error";
  };
  EXPECT_THAT(refused([](auto& r) { r.width = 21; }), HasSubstr("multiple of 8: 16 or 24"));
  EXPECT_THAT(refused([](auto& r) { r.height = 0; }), HasSubstr("the height is 0"));
  EXPECT_THAT(refused([](auto& r) { r.height = 1 << 20; }), HasSubstr("wanted 8 to 16384"));
  EXPECT_THAT(refused([](auto& r) { r.steps = 0; }), HasSubstr("steps is 0"));
  EXPECT_THAT(refused([](auto& r) { r.text_tokens = 513; }), HasSubstr("wanted 1 to 512"));
  EXPECT_THAT(refused([](auto& r) { r.guidance = NAN; }), HasSubstr("guidance is nan"));
  EXPECT_THAT(refused([](auto& r) {
                r.strict = true;
                r.text_tokens = 2;
                r.prompt = "a cat in a hat";
              }),
              HasSubstr("more than 2 tokens"));
}

}  // namespace
}  // namespace braid::golden
