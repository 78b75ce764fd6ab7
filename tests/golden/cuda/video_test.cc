// CogVideoX on a GPU: in f32 as close to diffusers as the CPU, in bf16 and f16 as diffusers' own.
#include <gtest/gtest.h>

#include "braid/engine/diffusion/torch_generator.h"
#include "braid/engine/world.h"
#include "golden/diffusion/differences.h"
#include "golden/diffusion/video_case.h"

namespace braid::golden {
namespace {

class CudaVideo : public testing::TestWithParam<VideoCase> {
 protected:
  void SetUp() override {
    if (usable_gpus() == 0) GTEST_SKIP() << "no GPU";
  }
};

TEST_P(CudaVideo, LatentsAndPixelsInF32) {
  const VideoCase& c = GetParam();
  const SafetensorsFile golden(diffusion_golden(c.name + ".safetensors"));
  CogVideoXPipeline pipeline(
      tiny_pipeline(c.kind),
      {.device = {.cuda = true}, .dtype = DType::f32, .encoders = EncoderPlace::cpu});
  const MadeVideo made = make_video(pipeline, c.request);
  const double error = worst_difference(made.latents, tensor<float>(golden, "latents"));
  RecordProperty("latents", fmt::format("{:.3g}", error));
  EXPECT_LT(error, 1e-4);
  EXPECT_LE(worst_pixel(made, tensor<int32_t>(golden, "pixels")), 1);
}

INSTANTIATE_TEST_SUITE_P(CogVideoX, CudaVideo, testing::ValuesIn(video_cases()),
                         [](const auto& info) { return info.param.name; });

double diffusers_error(DType dtype, const std::string& kind, const std::string& what) {
  return diffusion_json(fmt::format("video_{}_errors.json", name(dtype))).at(kind).at(what);
}

class CudaCogVideoX : public testing::TestWithParam<DType> {};

// Predictions beside the CPU's, which goldens hold to diffusers: no further than diffusers in this
// type (0.72 to 0.92 times on an H200).
TEST_P(CudaCogVideoX, Prediction) {
  if (usable_gpus() == 0) GTEST_SKIP() << "no GPU";
  for (const char* kind : {"video", "video_rotary", "video_pairs"}) {
    const DiffusersFolder folder(tiny_pipeline(kind));
    const std::vector<int64_t> timesteps = {999, 500, 20};
    const auto predictions = [&](const DeviceSpec& device) {
      CogVideoXTransformer transformer(folder.config("transformer"), folder.weights("transformer"),
                                       {.device = device, .dtype = GetParam()});
      const CogVideoXConfig& c = transformer.config();
      const VideoGrid grid{4 / c.patch_frames, 3, 4};
      std::vector<float> text(static_cast<size_t>(16 * c.text_dim)),
          latents(static_cast<size_t>(grid.tokens() * c.token_dim())), all;
      TorchGenerator(1).normals(text);
      TorchGenerator(2).normals(latents);
      transformer.begin({.grid = grid, .text_states = text, .timesteps = timesteps});
      // Twice: as single launches, and as a graph.
      for (int64_t i : {0, 0, 1, 2}) {
        const auto made = transformer.predict(i, latents);
        all.insert(all.end(), made.begin(), made.end());
      }
      return all;
    };
    const auto got = predictions({.cuda = true}), want = predictions({});
    const double error = relative_rms(got, want);
    const double diffusers = diffusers_error(GetParam(), kind, "prediction");
    RecordProperty(std::string(kind) + "_error_over_diffusers", std::to_string(error / diffusers));
    EXPECT_LT(error, diffusers) << kind;
  }
}

INSTANTIATE_TEST_SUITE_P(Types, CudaCogVideoX, testing::Values(DType::bf16, DType::f16),
                         [](const auto& info) { return std::string(name(info.param)); });

// Pictures of three chunks, before 8 bits, beside the CPU's: as diffusers in bf16 (0.93 to 0.98
// times on an H200).
TEST(CudaVideoDecoder, PicturesInBf16) {
  if (usable_gpus() == 0) GTEST_SKIP() << "no GPU";
  for (const char* kind : {"video", "video_rotary", "video_pairs"}) {
    const DiffusersFolder folder(tiny_pipeline(kind));
    const auto pixels = [&](const DeviceSpec& device) {
      VideoDecoder decoder(folder.config("vae"), folder.weights("vae"), {.device = device});
      std::vector<float> latents(static_cast<size_t>(5 * 6 * 8 * decoder.channels()));
      TorchGenerator(1).normals(latents);
      return decoder.pixels(latents, {.frames = 5, .height = 6, .width = 8});
    };
    const double error = relative_rms(pixels({.cuda = true}), pixels({}));
    const double diffusers = diffusers_error(DType::bf16, kind, "picture");
    RecordProperty(std::string(kind) + "_picture_error_over_diffusers",
                   std::to_string(error / diffusers));
    EXPECT_LT(error, 1.1 * diffusers) << kind;
  }
}

}  // namespace
}  // namespace braid::golden
