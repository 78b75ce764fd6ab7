// Steps of models with the real counts of heads, 24 of Flux, 30 of CogVideoX 2B and 48 of 5B, and
// of pictures of 1008 x 1008 and 832 x 1216 pixels: every mode on 2 to 8 ranks, and two groups of
// ranks for two passes of guidance, equals a single rank.
#include <gtest/gtest.h>

#include <array>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <random>

#include "braid/engine/diffusion/flux_transformer.h"
#include "braid/engine/diffusion/random_source.h"
#include "golden/diffusion/flux_steps.h"
#include "golden/diffusion/impossible.h"
#include "golden/diffusion/video_case.h"
#include "unit/io/temp_folder.h"

namespace braid::golden {
namespace {

const std::vector<Topology> kTopologies = {{1, 2}, {3, 1}, {2, 2}, {1, 5}, {3, 2}, {1, 7}, {2, 4}};
// Of each of two groups.
const std::vector<Topology> kGroups = {{1, 2}, {1, 3}, {1, 4}, {2, 2}};
const std::vector<int64_t> kTexts = {1, 77, 226, 511, 512};

// Values of a list, over and over.
template <class T>
class Turns {
 public:
  explicit Turns(std::vector<T> values) : values_(std::move(values)) {}
  const T& next() { return values_[next_++ % values_.size()]; }

 private:
  std::vector<T> values_;
  size_t next_ = 0;
};

std::vector<float> draw(int64_t n, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> x(static_cast<size_t>(n));
  for (float& v : x) v = normal(random);
  return x;
}

// One block of each kind, narrow.
JsonObject flux_config(int64_t heads) {
  return {"a small flux",
          {{"in_channels", 16},
           {"num_layers", 1},
           {"num_single_layers", 1},
           {"num_attention_heads", heads},
           {"attention_head_dim", 8},
           {"joint_attention_dim", 16},
           {"pooled_projection_dim", 16},
           {"guidance_embeds", true},
           {"axes_dims_rope", {2, 2, 4}}}};
}

class Flux {
 public:
  explicit Flux(int64_t heads)
      : json_(flux_config(heads)), config_(read_flux_config(json_)), weights_("flux", programs()) {}

  void expect_equal(SpMode mode, const Topology& topology, const std::vector<Picture>& pictures) {
    const SequenceMesh mesh = sequence_mesh(mode, topology, config_.heads);
    FluxTransformer divided(json_, weights_, {.threads = 1, .mesh = mesh});
    for (const Picture& p : pictures) {
      SCOPED_TRACE(testing::Message()
                   << to_string(topology) << ", " << to_string(mesh.degrees) << ", text " << p.text
                   << ", image " << p.rows << " x " << p.columns);
      auto& want = wanted_[{p.text, p.rows, p.columns}];
      if (want.empty()) {
        FluxTransformer alone(json_, weights_, {.threads = 2});
        want = velocity(alone, p);
      }
      const auto [low, high] = std::ranges::minmax(want);
      EXPECT_GT(high - low, 0.1);
      EXPECT_LE(worst_difference(velocity(divided, p), want), 1e-5);
    }
  }

 private:
  std::vector<Program> programs() const {
    const WeightDtype f32 = [](std::string_view) { return DType::f32; };
    return {flux_text(config_, 1, f32), flux_modulation(config_, 1, f32),
            flux_step(config_, {.text = 1, .image = 1}, f32)};
  }

  std::vector<float> velocity(FluxTransformer& transformer, const Picture& p) const {
    begin(transformer, p, std::vector<float>{0.7f}, draw);
    const auto v = transformer.velocity(0, draw(p.rows * p.columns * config_.in_channels, 3));
    return {v.begin(), v.end()};
  }

  const JsonObject json_;
  const FluxConfig config_;
  const RandomSource weights_;
  std::map<std::array<int64_t, 3>, std::vector<float>> wanted_;  // by text, rows, columns
};

class FluxHeads : public testing::TestWithParam<SpMode> {};

TEST_P(FluxHeads, EqualOneRank) {
  static Flux flux(24);
  std::vector<Picture> pictures;
  for (int64_t text : kTexts) pictures.push_back({text, 3, 5});
  for (const Topology& topology : kTopologies) flux.expect_equal(GetParam(), topology, pictures);
}

// The texts come by turns, for the time of a test.
TEST_P(FluxHeads, EqualOneRankWithTwiceTheHeads) {
  static Flux flux(48);
  Turns text(kTexts);
  for (const Topology& topology : kTopologies) {
    flux.expect_equal(GetParam(), topology, {{text.next(), 5, 3}, {text.next(), 5, 3}});
  }
}

// 1008 x 1008 and 832 x 1216 pixels: tokens that do not divide evenly, of few heads.
TEST_P(FluxHeads, EqualOneRankAtTheSizesOfPictures) {
  static Flux of_four(4), of_eight(8);
  Turns text(kTexts);
  for (const Topology& topology : kTopologies) {
    Flux& flux = impossible(GetParam(), topology, 4) ? of_eight : of_four;
    flux.expect_equal(GetParam(), topology, {{text.next(), 63, 63}, {text.next(), 76, 52}});
  }
}

// One block, narrow, beside a decoder that nothing runs.
PipelineParts video_parts(int64_t heads) {
  auto config =
      nlohmann::json::parse(std::ifstream(BRAID_TEST_DATA "/../configs/cogvideox-2b.json"));
  config["transformer"].update({{"attention_head_dim", 16},
                                {"in_channels", 4},
                                {"out_channels", 4},
                                {"num_layers", 1},
                                {"text_embed_dim", 16},
                                {"time_embed_dim", 16},
                                {"use_rotary_positional_embeddings", true}});
  config["vae"].update({{"latent_channels", 4},
                        {"block_out_channels", {8, 8, 8, 8}},
                        {"layers_per_block", 1},
                        {"norm_num_groups", 4}});
  static const test::TempFolder folder;  // of this process: tests run beside each other
  return random_cogvideox(folder.write("narrow_video.json", config.dump()), DType::f32,
                          {{"num_attention_heads", heads}});
}

// Random numbers stand for the two texts, unequal.
VideoRequest video_of(int64_t text, int64_t width, int64_t height, int64_t frames, int64_t steps) {
  return {.width = width,
          .height = height,
          .frames = frames,
          .steps = steps,
          .guidance = 5,
          .text_tokens = text,
          .seed = 3,
          .on_progress = [](const PipelineProgress& p) {
            return p.stage != PipelineProgress::Stage::decode;
          }};
}

class VideoHeads : public testing::TestWithParam<SpMode> {
 protected:
  // Each group of ranks computes one pass, and has the machines and devices of `topology`.
  static void expect_equal(int64_t heads, const Topology& topology, int cfg_ranks,
                           const std::vector<VideoRequest>& requests) {
    static std::map<std::array<int64_t, 4>, std::vector<float>> wanted;
    PipelineConfig config{.threads = 1, .cfg_ranks = cfg_ranks};
    if (topology.ranks() > 1) {
      config.sp = GetParam();
      config.topology = {topology.machines, topology.devices * cfg_ranks};
    }
    CogVideoXPipeline divided(video_parts(heads), config);
    EXPECT_EQ(divided.mesh() ? divided.mesh()->ranks() : 1, topology.ranks());
    for (const VideoRequest& r : requests) {
      SCOPED_TRACE(testing::Message() << to_string(topology) << ", cfg " << cfg_ranks << ", text "
                                      << r.text_tokens << ", " << r.width << " x " << r.height);
      auto& want = wanted[{heads, r.text_tokens, r.width, r.height}];
      if (want.empty()) {
        CogVideoXPipeline alone(video_parts(heads), {.threads = 2});
        want = make_video(alone, r).latents;
      }
      const auto [low, high] = std::ranges::minmax(want);
      EXPECT_LE(worst_difference(make_video(divided, r).latents, want),
                1e-5 * std::max(-low, high));
    }
  }

  // The texts come by turns, so that every mode meets each text, for the time of a test.
  static void expect_equal_by_turns(const std::vector<Topology>& topologies, int cfg_ranks) {
    Turns text(kTexts);
    for (const Topology& topology : topologies) {
      for (int64_t heads : {30, 48, 30}) {
        expect_equal(heads, topology, cfg_ranks, {video_of(text.next(), 48, 32, 9, 1)});
      }
    }
  }
};

TEST_P(VideoHeads, EqualOneRank) {
  expect_equal_by_turns(kTopologies, 1);
}

TEST_P(VideoHeads, TwoPassesOnTwoGroupsEqualOneRank) {
  expect_equal_by_turns(kGroups, 2);
}

// The two sizes and the texts come by turns, for the time of a test.
TEST_P(VideoHeads, EqualOneRankAtTheSizesOfPictures) {
  Turns size(std::vector<std::pair<int64_t, int64_t>>{{832, 1216}, {1008, 1008}});
  Turns text(kTexts);
  for (int cfg_ranks : {1, 2}) {
    for (const Topology& topology : cfg_ranks == 1 ? kTopologies : kGroups) {
      const auto [width, height] = size.next();
      expect_equal(impossible(GetParam(), topology, 4) ? 8 : 4, topology, cfg_ranks,
                   {video_of(text.next(), width, height, 1, 1)});
    }
  }
}

const auto mode_name = [](const auto& info) { return std::string(to_string(info.param)); };
INSTANTIATE_TEST_SUITE_P(Modes, FluxHeads, testing::ValuesIn(kSpModes), mode_name);
INSTANTIATE_TEST_SUITE_P(Modes, VideoHeads, testing::ValuesIn(kSpModes), mode_name);

}  // namespace
}  // namespace braid::golden
