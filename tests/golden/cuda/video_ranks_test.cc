// CogVideoX over GPUs: the decoder, whose ranks divide rows of frames, and whole videos in f32 and
// f16 with the passes of guidance on two groups.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <optional>

#include "braid/engine/diffusion/torch_generator.h"
#include "braid/engine/world.h"
#include "golden/diffusion/differences.h"
#include "golden/diffusion/video_case.h"
#include "golden/support/forward.h"

namespace braid::golden {
namespace {

class CudaVideoRanks : public testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    if (const char* why = cannot_run(GetParam())) GTEST_SKIP() << why;
  }
};

// As one GPU in bf16, as the CPU in f32.
TEST_P(CudaVideoRanks, Pictures) {
  for (const char* kind : {"video", "video_pairs"}) {
    const DiffusersFolder folder(tiny_pipeline(kind));
    const auto pictures = [&](const NetworkConfig& network, const VideoLatentSize& size) {
      VideoDecoder decoder(folder.config("vae"), folder.weights("vae"), network);
      std::vector<float> latents(
          static_cast<size_t>(size.frames * size.height * size.width * decoder.channels()));
      TorchGenerator(5).normals(latents);
      return decoder.pixels(latents, size);
    };
    for (int machines : {1, 2}) {
      const SequenceMesh mesh = sequence_mesh(
          SpMode::ring, {.machines = machines, .devices = GetParam() / machines}, GetParam());
      for (const VideoLatentSize& size :
           {VideoLatentSize{1, 9, 5}, {2, 16, 12}, {3, 8, 1}, {5, 13, 7}}) {
        SCOPED_TRACE(fmt::format("{}, {} machines, {} x {} x {}", kind, machines, size.frames,
                                 size.height, size.width));
        const DeviceSpec gpus = gpus_for(GetParam());
        const auto cpu = pictures({}, size);
        EXPECT_LT(
            relative_rms(pictures({.mesh = mesh, .device = gpus, .dtype = DType::f32}, size), cpu),
            1e-5);
        const double one = relative_rms(pictures({.device = gpus_for(1)}, size), cpu);
        EXPECT_LT(relative_rms(pictures({.mesh = mesh, .device = gpus}, size), cpu), 1.5 * one);
      }
    }
  }
}

// Calls `run` with a pipeline by ring and by ulysses, on one group of ranks and, with guidance, on
// two.
void for_each_pipeline(const VideoCase& c, int ranks, DType dtype,
                       const std::function<void(CogVideoXPipeline& pipeline)>& run) {
  for (int cfg_ranks : {1, 2}) {
    if (cfg_ranks == 2 && c.request.guidance <= 1) continue;
    for (SpMode mode : {SpMode::ring, SpMode::ulysses}) {
      SCOPED_TRACE(fmt::format("{}, {}, {} cfg ranks", c.name, to_string(mode), cfg_ranks));
      std::optional<CogVideoXPipeline> pipeline;
      try {
        pipeline.emplace(tiny_pipeline(c.kind),
                         PipelineConfig{.sp = mode,
                                        .topology = {.machines = 1, .devices = ranks},
                                        .cfg_ranks = cfg_ranks,
                                        .device = gpus_for(ranks),
                                        .dtype = dtype,
                                        .encoders = EncoderPlace::cpu});
      } catch (const Error& e) {
        EXPECT_EQ(e.code(), ErrorCode::kInvalidArgument);  // more head groups than heads
        EXPECT_EQ(mode, SpMode::ulysses);
        continue;
      }
      run(*pipeline);
    }
  }
}

TEST_P(CudaVideoRanks, LatentsAndPixelsInF32) {
  for (const VideoCase& c : video_cases()) {
    const SafetensorsFile golden(diffusion_golden(c.name + ".safetensors"));
    double worst = 0;
    for_each_pipeline(c, GetParam(), DType::f32, [&](CogVideoXPipeline& pipeline) {
      const MadeVideo made = make_video(pipeline, c.request);
      worst = std::max(worst, worst_difference(made.latents, tensor<float>(golden, "latents")));
      EXPECT_LE(worst_pixel(made, tensor<int32_t>(golden, "pixels")), 1);
    });
    RecordProperty(c.name + "_latents", fmt::format("{:.3g}", worst));
    EXPECT_LT(worst, 1e-4);
  }
}

// Ranks are as far from diffusers' latents in f32 as one GPU in f16: at most twice, since
// different orders of rounding fall differently.
TEST_P(CudaVideoRanks, LatentsInF16) {
  for (const VideoCase& c : video_cases()) {
    const auto want =
        tensor<float>(SafetensorsFile(diffusion_golden(c.name + ".safetensors")), "latents");
    CogVideoXPipeline alone(
        tiny_pipeline(c.kind),
        {.device = gpus_for(1), .dtype = DType::f16, .encoders = EncoderPlace::cpu});
    const double one = relative_rms(make_video(alone, c.request).latents, want);
    double worst = 0;
    for_each_pipeline(c, GetParam(), DType::f16, [&](CogVideoXPipeline& pipeline) {
      const double error = relative_rms(make_video(pipeline, c.request).latents, want);
      EXPECT_LT(error, 2 * one);
      worst = std::max(worst, error);
    });
    RecordProperty(c.name + "_error_over_one_gpu", std::to_string(worst / one));
    RecordProperty(c.name + "_error", std::to_string(one));
  }
}

// Both passes by turns and as a batch, as one after another: in f32 on tiny pipelines, in bf16 and
// f16 with heads of 64, there also as one GPU. Numbers in f16 have three bits more than in bf16.
TEST_P(CudaVideoRanks, PassesAtOnce) {
  const VideoGrid grid{2, 4, 6};
  const std::vector<int64_t> timesteps = {999, 500};
  const auto predictions = [&](const JsonObject& json,
                               const std::shared_ptr<const WeightSource>& weights,
                               NetworkConfig network, const char* schedule, TextOrder order) {
    network.schedule = schedule;
    CogVideoXTransformer transformer(json, weights, network);
    const CogVideoXConfig& c = transformer.config();
    std::vector<float> text(static_cast<size_t>(2 * 9 * c.text_dim)),
        latents(static_cast<size_t>(grid.tokens() * c.token_dim())), all;
    TorchGenerator(1).normals(text);
    TorchGenerator(2).normals(latents);
    transformer.begin(
        {.grid = grid, .texts = 2, .text_states = text, .timesteps = timesteps, .order = order});
    EXPECT_EQ(transformer.order(), order);
    // Twice: as single launches, and as a graph.
    for (int64_t i : {0, 0, 1}) {
      const auto made = transformer.predict(i, latents);
      all.insert(all.end(), made.begin(), made.end());
    }
    return all;
  };
  struct Wide {
    PipelineParts parts;
    double bound;
    std::vector<float> alone;
  };
  std::map<DType, Wide> wides;
  for (const auto& [dtype, bound] : {std::pair{DType::bf16, 0.01}, {DType::f16, 0.01 / 8}}) {
    PipelineParts parts = random_cogvideox(BRAID_TEST_DATA "/../configs/cogvideox-2b.json", dtype,
                                           {{"num_layers", 2}, {"num_attention_heads", 4}});
    auto alone =
        predictions(parts.transformer, parts.transformer_weights,
                    {.device = gpus_for(1), .dtype = dtype, .random = parts.random_transformer},
                    "sequential", TextOrder::apart);
    EXPECT_LT(
        relative_rms(
            predictions(parts.transformer, parts.transformer_weights,
                        {.device = gpus_for(1), .dtype = dtype, .random = parts.random_transformer},
                        "sequential", TextOrder::batch),
            alone),
        bound);
    wides.emplace(dtype, Wide{std::move(parts), bound, std::move(alone)});
  }
  bool same_bits = true;
  for (int machines : {1, 2}) {
    const Topology topology{.machines = machines, .devices = GetParam() / machines};
    for (SpMode mode : {SpMode::ring, SpMode::ulysses, SpMode::torus}) {
      for (DType dtype : {DType::f32, DType::bf16, DType::f16}) {
        SCOPED_TRACE(fmt::format("{}, {}, {}", to_string(topology), to_string(mode), name(dtype)));
        const DiffusersFolder folder(tiny_pipeline("video_rotary"));
        const Wide* wide = dtype == DType::f32 ? nullptr : &wides.at(dtype);
        const JsonObject json = wide ? wide->parts.transformer : folder.config("transformer");
        NetworkConfig network{.device = gpus_for(GetParam()),
                              .dtype = dtype,
                              .random = wide ? wide->parts.random_transformer : nullptr};
        try {
          network.mesh = sequence_mesh(mode, topology, read_cogvideox_config(json).heads);
        } catch (const Error& e) {
          EXPECT_EQ(e.code(), ErrorCode::kInvalidArgument);  // more head groups than heads
          continue;
        }
        std::shared_ptr<const WeightSource> weights = folder.weights("transformer");
        if (wide) weights = wide->parts.transformer_weights;
        const auto turns = predictions(json, weights, network, "cfg_passes", TextOrder::turns);
        const auto batch =
            predictions(json, weights, network, "sequence_parallel", TextOrder::batch);
        EXPECT_LT(relative_rms(batch, turns), wide ? wide->bound : 1e-5);
        for (const char* schedule : {"sequence_parallel", "sequential"}) {
          const auto apart = predictions(json, weights, network, schedule, TextOrder::apart);
          EXPECT_LT(relative_rms(turns, apart), wide ? wide->bound : 1e-6) << schedule;
          same_bits = same_bits && turns == apart;
        }
        // Both are as far from f32 as the bound says.
        if (wide) {
          EXPECT_LT(relative_rms(turns, wide->alone), 2 * wide->bound);
          EXPECT_LT(relative_rms(batch, wide->alone), 2 * wide->bound);
        }
      }
    }
  }
  RecordProperty("same_bits", same_bits ? "yes" : "no");
}

// The passes on two groups of two ranks, in modes with a degree of their own, on one machine and
// on several: latents of diffusers.
TEST(CudaVideoModes, WithTwoGroupsOfRanks) {
  if (const char* why = cannot_run(4)) GTEST_SKIP() << why;
  for (const VideoCase& c : video_cases()) {
    if (c.name != "video" && c.name != "video_rotary" && c.name != "video_pairs") continue;
    const auto want =
        tensor<float>(SafetensorsFile(diffusion_golden(c.name + ".safetensors")), "latents");
    VideoRequest request = c.request;
    request.on_progress = [](const PipelineProgress& p) {
      return p.stage != PipelineProgress::Stage::decode;
    };
    for (const SpMode mode : {SpMode::usp, SpMode::tas, SpMode::torus}) {
      for (const int machines : {1, 4}) {
        SCOPED_TRACE(fmt::format("{}, {}, {} machines", c.name, to_string(mode), machines));
        CogVideoXPipeline pipeline(tiny_pipeline(c.kind),
                                   {.sp = mode,
                                    .topology = {.machines = machines, .devices = 4 / machines},
                                    .cfg_ranks = 2,
                                    .links = {.cluster_link = Link{.bytes_per_second = 1e9}},
                                    .device = gpus_for(4),
                                    .dtype = DType::f32,
                                    .encoders = EncoderPlace::cpu});
        EXPECT_EQ(pipeline.mesh()->ranks(), 2);
        EXPECT_LT(worst_difference(make_video(pipeline, request).latents, want), 2e-4);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Over, CudaVideoRanks, testing::Values(2, 4));

}  // namespace
}  // namespace braid::golden
