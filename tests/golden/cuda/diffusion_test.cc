// Flux.1 on a GPU against diffusers: in f32 as closely as the CPU, in bf16 and f16 as closely as
// diffusers' own.
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "braid/engine/diffusion/flux_pipeline.h"
#include "braid/engine/diffusion/torch_generator.h"
#include "braid/engine/world.h"
#include "golden/cuda/flux_velocity.h"
#include "golden/diffusion/flux_case.h"

namespace braid::golden {
namespace {

#define REQUIRE_GPU() \
  if (usable_gpus() == 0) GTEST_SKIP() << "no GPU"

const DeviceSpec kGpu{.cuda = true};

class CudaDiffusion : public testing::TestWithParam<DiffusionCase> {
 protected:
  void SetUp() override { REQUIRE_GPU(); }
};

double velocity_error(const DiffusionCase& c, DType dtype) {
  const DiffusersFolder folder(tiny_pipeline(c.kind));
  const auto weights = folder.weights("transformer");
  FluxTransformer transformer(folder.config("transformer"), *weights,
                              {.device = kGpu, .dtype = dtype});
  return velocity_error(c, transformer);
}

TEST_P(CudaDiffusion, VelocityInF32) {
  EXPECT_LT(velocity_error(GetParam(), DType::f32), 1e-5);
}

// Near diffusers' error: few tokens, on which different orders of rounding fall differently
// (0.82 to 1.08 times in bf16, to 1.40 in f16 on an H200).
TEST_P(CudaDiffusion, VelocityInBf16AndF16) {
  const DiffusionCase& c = GetParam();
  for (auto [dtype, most] : {std::pair{DType::bf16, 1.25}, {DType::f16, 1.6}}) {
    const std::string type(name(dtype));
    const double diffusers = diffusion_json(type + "_errors.json").at(c.name).at("velocity");
    const double error = velocity_error(c, dtype);
    RecordProperty(type + "_error_over_diffusers", std::to_string(error / diffusers));
    EXPECT_LT(error, most * diffusers) << type;
  }
}

// With encoders on the CPU, and on the GPU.
TEST_P(CudaDiffusion, LatentsAndPixelsInF32) {
  const DiffusionCase& c = GetParam();
  for (const EncoderPlace place : {EncoderPlace::cpu, EncoderPlace::gpu}) {
    const char* where = place == EncoderPlace::cpu ? "cpu" : "gpu";
    SCOPED_TRACE(where);
    FluxPipeline pipeline(tiny_pipeline(c.kind),
                          {.device = kGpu, .dtype = DType::f32, .encoders = place});
    for (size_t i = 0; i < c.prompts.size(); ++i) {
      const GoldenPicture want(c, i);
      const MadePicture made = make_picture(pipeline, c, i);
      EXPECT_TRUE(made.result.complete);
      const double error = worst_difference(made.latents, want.latents);
      RecordProperty(fmt::format("latents_{}_{}", where, i), fmt::format("{:.3g}", error));
      EXPECT_LT(error, 1e-4);
      EXPECT_LE(worst_pixel(made.image, want.pixels), 1);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Flux, CudaDiffusion, testing::ValuesIn(diffusion_cases()),
                         [](const auto& info) { return info.param.name; });

// The decoder in bf16 beside the CPU's in f32, which the goldens hold to diffusers.
TEST(CudaAutoencoder, PictureInBf16) {
  REQUIRE_GPU();
  for (const char* kind : {"guided", "fast"}) {
    SCOPED_TRACE(kind);
    const DiffusersFolder folder(tiny_pipeline(kind));
    const auto picture = [&](const DeviceSpec& device) {
      VaeDecoder decoder(folder.config("vae"), folder.weights("vae"), {.device = device});
      std::vector<float> latents(static_cast<size_t>(16 * 12 * decoder.channels()));
      TorchGenerator(1).normals(latents);
      const auto pixels = decoder.decode(latents, 16, 12);
      return std::vector<float>(pixels.begin(), pixels.end());
    };
    const double diffusers = diffusion_json("bf16_errors.json").at(kind).at("picture");
    const double error = relative_rms(picture(kGpu), picture({}));
    RecordProperty(std::string(kind) + "_error_over_diffusers", std::to_string(error / diffusers));
    EXPECT_LT(error, 2 * diffusers);
  }
}

// Blended tiles: in f32 as diffusers' own, in bf16 as close as an exact decoding has to be.
TEST(CudaAutoencoder, BlendedTiles) {
  REQUIRE_GPU();
  const SafetensorsFile golden(diffusion_golden("tiles.safetensors"));
  for (const std::string kind : {"guided", "fast"}) {
    SCOPED_TRACE(kind);
    const DiffusersFolder folder(tiny_pipeline(kind));
    const AutoencoderKlConfig c = read_autoencoder_kl_config(folder.config("vae"));
    const Shape z = golden.get(kind + ".latents").shape;
    std::vector<float> latents = tensor<float>(golden, kind + ".latents");
    for (float& v : latents) v = (v - c.shift_factor) * c.scaling_factor;
    const auto tiles = [&](DType dtype) {
      VaeDecoder decoder(folder.config("vae"), folder.weights("vae"),
                         {.device = kGpu, .dtype = dtype});
      EXPECT_TRUE(decoder.tiles().divides(z[0], z[1]));
      return decoder.decode_tiles(latents, z[0], z[1]);
    };
    const auto want = tensor<float>(golden, kind + ".image");
    EXPECT_LT(worst_difference(tiles(DType::f32), want), 1e-4);
    const double diffusers = diffusion_json("bf16_errors.json").at(kind).at("picture");
    EXPECT_LT(relative_rms(tiles(DType::bf16), want), 2 * diffusers);
  }
}

// The GPU makes the random weights that the CPU makes.
TEST(CudaDiffusionRandom, WeightsAreTheCpus) {
  REQUIRE_GPU();
  const std::string path = testing::TempDir() + "/tiny-flux.json";
  std::ofstream(path) << R"({
    "scheduler": {"_class_name": "FlowMatchEulerDiscreteScheduler", "shift": 1.0},
    "transformer": {"in_channels": 16, "num_layers": 1, "num_single_layers": 1,
                    "num_attention_heads": 2, "attention_head_dim": 64, "joint_attention_dim": 48,
                    "pooled_projection_dim": 32, "axes_dims_rope": [16, 24, 24]},
    "vae": {"latent_channels": 4, "block_out_channels": [64, 64], "norm_num_groups": 8,
            "use_post_quant_conv": false}})";
  // What two steps add to the noise.
  const auto change = [&](const DeviceSpec& device, DType dtype) {
    FluxPipeline pipeline(random_flux(path, dtype), {.device = device, .dtype = dtype});
    ImageRequest request{.width = 32, .height = 24, .steps = 2, .text_tokens = 9, .seed = 3};
    std::vector<float> noise, last;
    request.on_latents = [&](int64_t, int64_t step, std::span<const float> x) {
      (step == 0 ? noise : last).assign(x.begin(), x.end());
    };
    EXPECT_TRUE(pipeline.generate(request).complete);
    for (size_t i = 0; i < last.size(); ++i) last[i] -= noise[i];
    return last;
  };
  for (auto [dtype, most] : {std::pair{DType::bf16, 0.02}, {DType::f16, 0.02 / 8}}) {
    EXPECT_LT(relative_rms(change(kGpu, dtype), change({}, dtype)), most) << name(dtype);
  }
}

// Encoders that leave before the steps change nothing but the plan, for a second prompt too.
TEST(CudaMemory, EncodersThatLeaveMakeTheSamePictures) {
  REQUIRE_GPU();
  std::vector<std::vector<uint8_t>> pictures[2];
  int64_t most[2] = {};
  for (const bool leave : {false, true}) {
    FluxPipeline pipeline(
        tiny_pipeline("guided"),
        {.device = kGpu, .encoders = leave ? EncoderPlace::load : EncoderPlace::gpu});
    for (const char* prompt : {"a red box", "a cat", "a red box"}) {
      ImageRequest request{.prompt = prompt,
                           .width = 32,
                           .height = 24,
                           .steps = 2,
                           .guidance = 3.5,
                           .text_tokens = 9,
                           .seed = 3};
      request.on_image = [&](int64_t, const RgbImage& image) {
        pictures[leave ? 1 : 0].push_back(image.pixels);
      };
      request.on_memory = [&](const PipelineMemory& m) { most[leave ? 1 : 0] = m.most; };
      EXPECT_TRUE(pipeline.generate(request).complete);
    }
  }
  EXPECT_EQ(pictures[0], pictures[1]);
  EXPECT_NE(pictures[0][0], pictures[0][1]);
  EXPECT_LT(most[1], most[0]);
}

// Without a wish encoders are where a request's memory says, from one request to the next; the
// picture of a place does not depend on the places before.
TEST(CudaMemory, EncodersMoveWithTheRoom) {
  REQUIRE_GPU();
  using enum EncoderPlace;
  const auto picture = [&](FluxPipeline& pipeline, int64_t width,
                           std::optional<PipelineMemory>& m) {
    std::vector<uint8_t> made;
    ImageRequest request{.prompt = "a cat",
                         .width = width,
                         .height = 32,
                         .steps = 2,
                         .guidance = 3.5,
                         .text_tokens = 9,
                         .seed = 3};
    request.on_image = [&](int64_t, const RgbImage& image) { made = image.pixels; };
    m = pipeline.generate(request).memory;
    return made;
  };
  std::map<EncoderPlace, std::vector<uint8_t>> wanted;
  int64_t most = 0;
  for (const EncoderPlace place : {gpu, load, cpu}) {
    FluxPipeline pipeline(tiny_pipeline("guided"), {.device = kGpu, .encoders = place});
    std::optional<PipelineMemory> m;
    wanted[place] = picture(pipeline, 32, m);
    EXPECT_EQ(m.value().encoders.value().place, place);
    most = std::max(most, m->most);
  }
  FluxPipeline pipeline(tiny_pipeline("guided"),
                        {.device = kGpu, .free_bytes = most + MemoryRoom::of_gpu(0, 0).reserved});
  std::optional<PipelineMemory> m;
  for (const auto& [width, place] : {std::pair{32, gpu}, {40, load}, {32, gpu}}) {
    const auto made = picture(pipeline, width, m);
    EXPECT_EQ(m.value().encoders.value().place, place) << width;
    if (width == 32) {
      EXPECT_EQ(made, wanted[place]);
    }
  }
}

// Little room: components take turns, and the picture stays.
TEST(CudaMemory, ComponentsThatTakeTurnsMakeTheSamePicture) {
  REQUIRE_GPU();
  std::vector<std::vector<uint8_t>> pictures;
  int64_t most = 0;
  for (const bool turns : {false, true}) {
    PipelineConfig config{.device = kGpu, .encoders = EncoderPlace::cpu};
    if (turns) config.free_bytes = most - 1;
    FluxPipeline pipeline(tiny_pipeline("guided"), config);
    ImageRequest request{.prompt = "a cat",
                         .width = 32,
                         .height = 32,
                         .steps = 2,
                         .guidance = 3.5,
                         .text_tokens = 9,
                         .seed = 3};
    request.on_image = [&](int64_t, const RgbImage& image) { pictures.push_back(image.pixels); };
    request.on_memory = [&](const PipelineMemory& m) {
      most = m.most + MemoryRoom::of_gpu(0, 0).reserved;
      EXPECT_NE(m.together, turns);
    };
    EXPECT_TRUE(pipeline.generate(request).complete);
  }
  EXPECT_EQ(pictures[0], pictures[1]);
}

// Noise has the model's type.
TEST(CudaNoise, IsRoundedAsDiffusersRounds) {
  REQUIRE_GPU();
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    FluxPipeline pipeline(tiny_pipeline("fast"), {.device = kGpu, .dtype = dtype});
    ImageRequest request{
        .prompt = "x", .width = 16, .height = 8, .steps = 1, .text_tokens = 4, .seed = 42};
    std::vector<float> first;
    request.on_latents = [&](int64_t, int64_t step, std::span<const float> x) {
      if (step == 0) first.assign(x.begin(), x.end());
    };
    EXPECT_TRUE(pipeline.generate(request).complete);
    std::vector<float> want(first.size());
    TorchGenerator(42, dtype).normals(want);
    std::ranges::sort(first);  // tokens are drawn numbers in another order
    std::ranges::sort(want);
    EXPECT_EQ(first, want) << name(dtype);
  }
}

}  // namespace
}  // namespace braid::golden
