// Flux's steps over GPUs that divide the sequence of text and image: the same as on one GPU and on
// the CPU, in every mode, with uneven shares and with ranks that have no row of the text.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>

#include "braid/engine/diffusion/flux_pipeline.h"
#include "braid/engine/diffusion/pipeline_checks.h"
#include "braid/engine/diffusion/torch_generator.h"
#include "braid/engine/world.h"
#include "golden/cuda/flux_velocity.h"
#include "golden/diffusion/flux_case.h"
#include "golden/diffusion/flux_steps.h"
#include "golden/diffusion/spoiled.h"
#include "golden/support/forward.h"

namespace braid::golden {
namespace {

const std::vector<Picture> kPictures = {{1, 3, 5}, {77, 2, 3}, {20, 11, 13}, {512, 8, 9}};

std::vector<float> normals(uint64_t seed, int64_t n) {
  std::vector<float> out(static_cast<size_t>(n));
  TorchGenerator(seed).normals(out);
  return out;
}

// Prepares two steps.
void begin(FluxTransformer& transformer, const Picture& p) {
  begin(transformer, p, std::vector<float>{1.0f, 0.4f},
        [](int64_t n, uint64_t seed) { return normals(seed, n); });
}

// The velocities of two steps. Each runs twice, and gives the same bits.
std::vector<float> velocities(FluxTransformer& transformer, const Picture& p) {
  begin(transformer, p);
  const auto latents = normals(3, p.rows * p.columns * transformer.config().in_channels);
  std::vector<float> all;
  for (int64_t step : {0, 1}) {
    const auto first = transformer.velocity(step, latents);
    const std::vector<float> v(first.begin(), first.end());
    const auto again = transformer.velocity(step, latents);
    EXPECT_TRUE(std::ranges::equal(v, again));
    all.insert(all.end(), v.begin(), v.end());
  }
  return all;
}

// A small Flux with random weights; its heads of 64 run on tensor cores.
PipelineParts small_flux(DType dtype = DType::bf16) {
  const std::string path = testing::TempDir() + "/tiny-flux-ranks.json";
  std::ofstream(path) << R"({
    "scheduler": {"_class_name": "FlowMatchEulerDiscreteScheduler", "shift": 1.0},
    "transformer": {"in_channels": 16, "num_layers": 2, "num_single_layers": 2,
                    "num_attention_heads": 4, "attention_head_dim": 64, "joint_attention_dim": 48,
                    "pooled_projection_dim": 32, "axes_dims_rope": [16, 24, 24]},
    "vae": {"latent_channels": 4, "block_out_channels": [64, 64], "norm_num_groups": 8,
            "use_post_quant_conv": false}})";
  return random_flux(path, dtype);
}

// A transformer and what makes one on other devices.
struct Model {
  JsonObject config;
  const WeightSource& weights;
  const RandomWeights* random = nullptr;

  FluxTransformer on(NetworkConfig network) const {
    network.random = network.device.cuda ? random : nullptr;
    return {config, weights, network};
  }
};

struct Tolerance {
  double one_gpu = 0, cpu = 0;
};

// The meshes of every mode over these ranks, as one machine and as several.
std::vector<SequenceMesh> all_meshes(int ranks, int64_t heads) {
  std::vector<SequenceMesh> all;
  for (int machines = 1; machines <= ranks; machines *= 2) {
    const Topology topology{.machines = machines, .devices = ranks / machines};
    for (SpMode mode : kSpModes) {
      for (SequenceMesh& mesh : sequence_meshes(mode, topology, heads)) {
        all.push_back(std::move(mesh));
      }
    }
  }
  return all;
}

std::string described(const SequenceMesh& mesh) {
  return fmt::format("{}, {}, {}", to_string(mesh.topology), to_string(mesh.mode),
                     to_string(mesh.degrees));
}

// Every mode over these ranks.
void expect_one_gpus_velocity(const Model& model, DType dtype, int ranks, Tolerance tolerance) {
  FluxTransformer cpu = model.on({.threads = 2});
  FluxTransformer one = model.on({.device = gpus_for(1), .dtype = dtype});
  std::map<int64_t, std::vector<float>> on_cpu, on_one;  // by text
  for (const Picture& p : kPictures) {
    on_cpu[p.text] = velocities(cpu, p);
    on_one[p.text] = velocities(one, p);
  }
  const auto meshes = all_meshes(ranks, one.config().heads);
  for (const SequenceMesh& mesh : meshes) {
    FluxTransformer divided = model.on({.mesh = mesh, .device = gpus_for(ranks), .dtype = dtype});
    for (const Picture& p : kPictures) {
      SCOPED_TRACE(
          fmt::format("{}, text {}, image {} x {}", described(mesh), p.text, p.rows, p.columns));
      const auto got = velocities(divided, p);
      EXPECT_LT(relative_rms(got, on_one[p.text]), tolerance.one_gpu);
      EXPECT_LT(relative_rms(got, on_cpu[p.text]), tolerance.cpu);
    }
  }
  EXPECT_GE(std::ssize(meshes), ranks);
}

class CudaDiffusionRanks : public testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    if (const char* why = cannot_run(GetParam())) GTEST_SKIP() << why;
  }
};

// On tensor cores, where a Hopper GPU's attention takes keys as they arrive. Numbers in f16 have
// three bits more than in bf16.
TEST_P(CudaDiffusionRanks, VelocitiesInBf16AndF16) {
  for (const auto& [dtype, tolerance] :
       {std::pair{DType::bf16, Tolerance{0.01, 0.02}}, {DType::f16, {0.01 / 8, 0.02 / 8}}}) {
    SCOPED_TRACE(name(dtype));
    const PipelineParts parts = small_flux(dtype);
    expect_one_gpus_velocity(
        {parts.transformer, *parts.transformer_weights, parts.random_transformer}, dtype,
        GetParam(), tolerance);
  }
}

// As one GPU's beside diffusers: twice the error of diffusers in this type. The same ranks take one
// mesh after another, with text in shares and whole on each rank.
TEST_P(CudaDiffusionRanks, VelocitiesBesideDiffusers) {
  for (const std::string kind : {"guided", "fast"}) {
    const DiffusersFolder folder(tiny_pipeline(kind));
    const JsonObject config = folder.config("transformer");
    const auto weights = folder.weights("transformer");
    const auto meshes = all_meshes(GetParam(), read_flux_config(config).heads);
    for (DType dtype : {DType::bf16, DType::f16}) {
      const std::string type(name(dtype));
      FluxTransformer transformer(
          config, *weights,
          {.mesh = meshes[0], .further = meshes, .device = gpus_for(GetParam()), .dtype = dtype});
      double most = 0;  // over diffusers' error
      const auto check = [&](const std::string& division) {
        for (const DiffusionCase& c : diffusion_cases()) {
          if (c.kind != kind || c.batch() > 1) continue;  // ranks divide a single picture
          const double diffusers = diffusion_json(type + "_errors.json").at(c.name).at("velocity");
          const double error = velocity_error(c, transformer);
          EXPECT_LT(error, 2 * diffusers) << c.name << " in " << type << ", " << division;
          most = std::max(most, error / diffusers);
        }
      };
      for (const SequenceMesh& mesh : meshes) {
        for (const TextRows text : kTextRows) {
          transformer.divide_by(mesh, "sequence_parallel", text);
          check(fmt::format("{}, text {}", described(mesh), to_string(text)));
        }
      }
      RecordProperty(kind + "_" + type + "_error_over_diffusers", std::to_string(most));
    }
  }
}

// The block behind which numbers are no longer finite has a name, on one GPU and over ranks.
TEST_P(CudaDiffusionRanks, BlocksBeyondFiniteAreNamed) {
  const PipelineParts parts = small_flux();
  const std::pair<const char*, const char*> cases[] = {
      {"x_embedder.bias", "before the blocks"},
      {"transformer_blocks.1.ff.net.2.bias", "behind block 2 of 4"},
      {"single_transformer_blocks.1.proj_out.bias", "behind block 4 of 4"}};
  const Picture p = kPictures[2];
  for (const auto& [weight, where] : cases) {
    const Spoiled weights(parts.transformer_weights, weight);
    for (const int ranks : {1, GetParam()}) {
      SCOPED_TRACE(fmt::format("{} over {}", weight, ranks));
      NetworkConfig network{.device = gpus_for(ranks)};
      if (ranks > 1) network.mesh = sequence_mesh(SpMode::ring, {.devices = ranks}, 4);
      FluxTransformer transformer(parts.transformer, weights, network);
      begin(transformer, p);
      const auto latents = normals(3, p.rows * p.columns * transformer.config().in_channels);
      EXPECT_FALSE(all_finite(transformer.velocity(1, latents)));
      EXPECT_EQ(transformer.first_block_beyond_finite(1, latents), where);
    }
  }
}

// The decoder, whose ranks divide a picture's rows: as one GPU in bf16, as the CPU in f32.
TEST_P(CudaDiffusionRanks, Pictures) {
  for (const char* kind : {"guided", "fast"}) {
    const DiffusersFolder folder(tiny_pipeline(kind));
    const auto picture = [&](const NetworkConfig& network, int64_t height, int64_t width) {
      VaeDecoder decoder(folder.config("vae"), folder.weights("vae"), network);
      const auto pixels =
          decoder.decode(normals(5, height * width * decoder.channels()), height, width);
      return std::vector<float>(pixels.begin(), pixels.end());
    };
    for (int machines : {1, 2}) {
      const SequenceMesh mesh = sequence_mesh(
          SpMode::ring, {.machines = machines, .devices = GetParam() / machines}, GetParam());
      for (const auto& [height, width] : {std::pair<int64_t, int64_t>{16, 12}, {9, 5}, {21, 33}}) {
        SCOPED_TRACE(fmt::format("{}, {} machines, {} x {}", kind, machines, height, width));
        const DeviceSpec gpus = gpus_for(GetParam());
        const auto cpu = picture({}, height, width);
        EXPECT_LT(
            relative_rms(
                picture({.mesh = mesh, .device = gpus, .dtype = DType::f32}, height, width), cpu),
            1e-5);
        const double one = relative_rms(picture({.device = gpus_for(1)}, height, width), cpu);
        EXPECT_LT(relative_rms(picture({.mesh = mesh, .device = gpus}, height, width), cpu),
                  1.5 * one);
      }
    }
  }
}

TEST_P(CudaDiffusionRanks, VelocitiesInF32) {
  const DiffusersFolder folder(tiny_pipeline("guided"));
  const auto weights = folder.weights("transformer");
  expect_one_gpus_velocity({folder.config("transformer"), *weights}, DType::f32, GetParam(),
                           {1e-5, 1e-5});
}

// Whole pipelines beside diffusers, after every step.
TEST_P(CudaDiffusionRanks, LatentsAndPixelsInF32) {
  for (const DiffusionCase& c : diffusion_cases()) {
    for (const SpMode mode : {SpMode::ring, SpMode::ulysses}) {
      SCOPED_TRACE(fmt::format("{}, {}", c.name, to_string(mode)));
      std::optional<FluxPipeline> pipeline;
      try {
        pipeline.emplace(tiny_pipeline(c.kind),
                         PipelineConfig{.sp = mode,
                                        .topology = {.machines = 1, .devices = GetParam()},
                                        .device = gpus_for(GetParam()),
                                        .dtype = DType::f32,
                                        .encoders = EncoderPlace::cpu});
      } catch (const Error& e) {
        EXPECT_EQ(e.code(), ErrorCode::kInvalidArgument);  // more head groups than heads
        EXPECT_EQ(mode, SpMode::ulysses);
        continue;
      }
      double worst = 0;
      for (size_t i = 0; i < c.prompts.size(); ++i) {
        const GoldenPicture want(c, i);
        const MadePicture made = make_picture(*pipeline, c, i);
        worst = std::max(worst, worst_difference(made.latents, want.latents));
        EXPECT_LE(worst_pixel(made.image, want.pixels), 1);
      }
      RecordProperty(fmt::format("{}_{}_latents", c.name, to_string(mode)),
                     fmt::format("{:.3g}", worst));
      EXPECT_LT(worst, 1e-4);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Over, CudaDiffusionRanks, testing::Values(2, 4));

}  // namespace
}  // namespace braid::golden
