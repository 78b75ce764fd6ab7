// CogVideoX from prompts to pictures against diffusers, and its samplers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "braid/engine/diffusion/torch_generator.h"
#include "golden/diffusion/video_case.h"

namespace braid::golden {
namespace {

using testing::HasSubstr;

class VideoGolden : public testing::TestWithParam<VideoCase> {};

TEST_P(VideoGolden, LatentsAndPixelsMatchDiffusers) {
  const auto& [name, kind, request] = GetParam();
  const SafetensorsFile golden(diffusion_golden(name + ".safetensors"));
  CogVideoXPipeline pipeline(tiny_pipeline(kind), {.threads = 2});
  const MadeVideo made = make_video(pipeline, request);
  EXPECT_LT(worst_difference(made.latents, tensor<float>(golden, "latents")), 1e-4);
  ASSERT_EQ(std::ssize(made.frames), request.videos * request.frames);
  for (const RgbImage& frame : made.frames) ASSERT_EQ(frame.width, request.width);
  EXPECT_LE(worst_pixel(made, tensor<int32_t>(golden, "pixels")), 1);
}

INSTANTIATE_TEST_SUITE_P(CogVideoX, VideoGolden, testing::ValuesIn(video_cases()),
                         [](const auto& info) { return info.param.name; });

TEST(CogVideoXSampler, StepsMatchDiffusers) {
  const nlohmann::json tables = diffusion_json("cogvideox_samplers.json");
  for (const auto& table : tables) {
    SCOPED_TRACE(table.at("config").dump());
    const int64_t steps = table.at("steps");
    CogVideoXSampler sampler(
        read_cogvideox_sampler_config(JsonObject("scheduler_config.json", table.at("config"))),
        steps);
    EXPECT_EQ(sampler.timesteps(), table.at("timesteps").get<std::vector<int64_t>>());
    const std::vector<float> want = table.at("latents");
    TorchGenerator generator(1), model(2);
    std::vector<float> x(16, 1), prediction(16), got;
    for (int64_t i = 0; i < steps; ++i) {
      model.normals(prediction);
      sampler.step(i, prediction, x, [&](std::span<float> noise) { generator.normals(noise); });
      got.insert(got.end(), x.begin(), x.end());
    }
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < got.size(); ++i) {
      EXPECT_NEAR(got[i], want[i], 1e-6 * std::max(1.0f, std::abs(want[i]))) << i;
    }
  }
}

// A number of steps for which floating point makes a timestep too many in the reference.
TEST(CogVideoXSampler, HasAsManyTimestepsAsSteps) {
  CogVideoXSamplerConfig config;
  config.spacing = CogVideoXSamplerConfig::Spacing::trailing;
  for (int64_t steps = 1; steps <= 1000; ++steps) {
    const CogVideoXSampler sampler(config, steps);
    const std::vector<int64_t> t = sampler.timesteps();
    ASSERT_EQ(std::ssize(t), steps);
    EXPECT_EQ(t.front(), 999);
    EXPECT_GE(t.back(), 0);
    EXPECT_TRUE(std::ranges::is_sorted(t, std::greater<>()));
  }
  EXPECT_THROW(CogVideoXSampler(config, 1001), Error);
}

TEST(CogVideoXSampler, UnknownOptionsAreNamed) {
  const auto refused = [](nlohmann::json config) -> std::string {
    try {
      read_cogvideox_sampler_config(JsonObject("scheduler_config.json", std::move(config)));
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::kUnsupported);
      return e.what();
    }
    return "no error";
  };
  const std::string name = "CogVideoXDDIMScheduler";
  EXPECT_THAT(refused({{"_class_name", "PNDMScheduler"}}), HasSubstr("'PNDMScheduler'"));
  EXPECT_THAT(refused({{"_class_name", name}, {"beta_schedule", "linear"}}),
              HasSubstr("beta_schedule is 'linear'"));
  EXPECT_THAT(refused({{"_class_name", name}, {"trained_betas", {0.5}}}),
              HasSubstr("trained_betas"));
  EXPECT_THAT(refused({{"_class_name", name}, {"beta_end", 2.0}}), HasSubstr("beta_end 2"));
}

// The names and shapes of the real checkpoints: each tensor is read once and none is left.
TEST(CogVideoXTransformer, TakesEveryTensorOfTheFullSize) {
  const nlohmann::json models = diffusion_json("cogvideox_names.json");
  const WeightDtype bf16 = [](std::string_view) { return DType::bf16; };
  for (const auto& [name, model] : models.items()) {
    SCOPED_TRACE(name);
    const CogVideoXConfig config =
        read_cogvideox_config(JsonObject("config.json", model.at("config")));
    std::map<std::string, std::vector<int64_t>> found, want = model.at("tensors");
    for (const Program& program :
         {cogvideox_text(config, 226, bf16), cogvideox_modulation(config, 50, bf16),
          cogvideox_step(config, {.text = 226, .tokens = 17550}, bf16)}) {
      for (const Value& value : program.values) {
        if (value.kind != ValueKind::weight) continue;
        const Shape& shape = value.type.shape;
        EXPECT_TRUE(
            found.emplace(value.name, std::vector<int64_t>(shape.begin(), shape.end())).second);
      }
    }
    std::vector<int64_t>& patch = want.at("patch_embed.proj.weight");
    if (patch.size() == 4) patch = {patch[0], patch[1] * patch[2] * patch[3]};
    EXPECT_EQ(found, want);
  }
}

TEST(CogVideoXPipeline, VideosHaveSeedsOfTheirOwn) {
  CogVideoXPipeline pipeline(tiny_pipeline("video_rotary"), {.threads = 1});
  VideoRequest request{.prompt = "a cat",
                       .width = 16,
                       .height = 8,
                       .frames = 9,
                       .steps = 2,
                       .guidance = 6,
                       .text_tokens = 5,
                       .seed = 5};
  const auto second = [&] {
    VideoRequest two = request;
    two.videos = 2;
    return make_video(pipeline, two);
  }();
  request.seed = 6;
  const MadeVideo alone = make_video(pipeline, request);
  const auto half = std::span(second.latents).last(alone.latents.size());
  EXPECT_EQ(worst_difference(alone.latents, half), 0);
}

TEST(CogVideoXPipeline, RefusesWhatIsOutOfRange) {
  CogVideoXPipeline pipeline(tiny_pipeline("video"), {.threads = 1});
  CogVideoXPipeline pairs(tiny_pipeline("video_pairs"), {.threads = 1, .cfg_ranks = 2});
  EXPECT_EQ(pipeline.unit(), 8);
  const auto refused = [](CogVideoXPipeline& of, auto&& change) -> std::string {
    VideoRequest request{.prompt = "x",
                         .width = 16,
                         .height = 16,
                         .frames = 17,
                         .steps = 1,
                         .guidance = 6,
                         .text_tokens = 4};
    change(request);
    try {
      of.generate(request);
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::kInvalidArgument);
      return e.what();
    }
    return "no error";
  };
  EXPECT_THAT(refused(pipeline, [](auto& r) { r.width = 21; }), HasSubstr("of 8: 16 or 24"));
  EXPECT_THAT(refused(pipeline, [](auto& r) { r.frames = 16; }), HasSubstr("8 k + 1: 9 or 17"));
  EXPECT_THAT(refused(pairs, [](auto& r) { r.frames = 9; }), HasSubstr("16 k + 1: 1 or 17"));
  EXPECT_THAT(refused(pairs, [](auto& r) { r.width = 56; }), HasSubstr("wanted 8 to 48"));
  EXPECT_THAT(refused(pairs, [](auto& r) { r.guidance = 1; }), HasSubstr("2 cfg ranks"));
  EXPECT_THAT(refused(pipeline, [](auto& r) { r.frames = 0; }), HasSubstr("frames is 0"));
  EXPECT_THAT(refused(pipeline, [](auto& r) { r.steps = 1001; }), HasSubstr("wanted 1 to 1000"));
  EXPECT_THAT(refused(pipeline, [](auto& r) { r.text_tokens = 513; }), HasSubstr("1 to 512"));
  EXPECT_THAT(refused(pipeline, [](auto& r) { r.guidance = NAN; }), HasSubstr("guidance is nan"));
  EXPECT_THAT(refused(pipeline,
                      [](auto& r) {
                        r.strict = true;
                        r.text_tokens = 2;
                        r.prompt = "a cat in a hat";
                      }),
              HasSubstr("prompt has more than 2 tokens"));
}

}  // namespace
}  // namespace braid::golden
