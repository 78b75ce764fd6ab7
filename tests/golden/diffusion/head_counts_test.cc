// Steps of Flux with the real count of heads, 24, where no mode is impossible: every mode on 2 to 8
// ranks equals a single rank.
#include <gtest/gtest.h>

#include <array>
#include <map>
#include <nlohmann/json.hpp>
#include <random>

#include "braid/engine/diffusion/flux_transformer.h"
#include "braid/engine/diffusion/random_source.h"
#include "golden/diffusion/differences.h"

namespace braid::golden {
namespace {

const std::vector<Topology> kTopologies = {{1, 2}, {3, 1}, {2, 2}, {1, 5}, {3, 2}, {1, 7}, {2, 4}};
const std::vector<int64_t> kTexts = {1, 77, 226, 511, 512};

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

struct Picture {
  int64_t text, rows, columns;
};

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
    const auto text = draw(p.text * config_.text_dim, 1), pooled = draw(config_.pooled_dim, 2);
    const std::vector<float> sigmas = {0.7f};
    transformer.begin({.token_rows = p.rows,
                       .token_columns = p.columns,
                       .text = text,
                       .pooled = pooled,
                       .sigmas = sigmas,
                       .guidance = 3.5f});
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

// 1008 x 1008 and 832 x 1216 pixels on 4 ranks: tokens that do not divide evenly, of few heads.
TEST_P(FluxHeads, EqualOneRankAtTheSizesOfPictures) {
  static Flux flux(4);
  flux.expect_equal(GetParam(), {2, 2}, {{77, 63, 63}, {511, 76, 52}});
}

const auto mode_name = [](const auto& info) { return std::string(to_string(info.param)); };
INSTANTIATE_TEST_SUITE_P(Modes, FluxHeads, testing::ValuesIn(kSpModes), mode_name);

}  // namespace
}  // namespace braid::golden
