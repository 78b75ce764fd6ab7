// Ranks that other ranks wait for in vain: a step and a decoding end with the deadline's error, in
// every mode, and the network stays ended. Text encoders use a single rank, which waits for nobody.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "braid/engine/diffusion/cogvideox_transformer.h"
#include "braid/engine/diffusion/flux_transformer.h"
#include "braid/engine/diffusion/vae_decoder.h"
#include "braid/engine/diffusion/video_decoder.h"
#include "golden/diffusion/case.h"

namespace braid::golden {
namespace {

constexpr int64_t kDeadlineMs = 300;

// Two ranks on machines of their own, with `link` between.
NetworkConfig two_ranks(SpMode mode, int64_t heads, const Link& link) {
  const Topology topology{.machines = 2, .devices = 1};
  NetworkConfig network{
      .threads = 1, .mesh = sequence_mesh(mode, topology, heads), .deadline_ms = kDeadlineMs};
  network.links.machines = 2;
  network.links.cluster_link = link;
  return network;
}

std::vector<float> values(int64_t n) {
  return std::vector<float>(static_cast<size_t>(n), 0.1f);
}

void expect_deadline(const std::function<void()>& run) {
  for (int attempt : {0, 1}) {
    try {
      run();
      ADD_FAILURE() << "no error in attempt " << attempt;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::kDeadline) << e.what();
      EXPECT_THAT(e.what(), testing::HasSubstr("rank"));
    }
  }
}

class RankFaults : public testing::TestWithParam<Link> {};

TEST_P(RankFaults, StepOfFlux) {
  const DiffusersFolder folder(tiny_pipeline("guided"));
  const auto weights = folder.weights("transformer");
  const FluxConfig config = read_flux_config(folder.config("transformer"));
  const auto text = values(8 * config.text_dim), pooled = values(config.pooled_dim);
  const auto latents = values(16 * config.in_channels);
  const std::vector<float> sigmas = {1};
  for (SpMode mode : kSpModes) {
    SCOPED_TRACE(to_string(mode));
    FluxTransformer transformer(folder.config("transformer"), *weights,
                                two_ranks(mode, config.heads, GetParam()));
    transformer.begin(
        {.token_rows = 4, .token_columns = 4, .text = text, .pooled = pooled, .sigmas = sigmas});
    expect_deadline([&] { transformer.velocity(0, latents); });
  }
}

TEST_P(RankFaults, PassOfCogVideoX) {
  const DiffusersFolder folder(tiny_pipeline("video"));
  const CogVideoXConfig config = read_cogvideox_config(folder.config("transformer"));
  const auto text = values(8 * config.text_dim);
  const std::vector<int64_t> timesteps = {500};
  for (SpMode mode : {SpMode::ring, SpMode::torus}) {
    SCOPED_TRACE(to_string(mode));
    CogVideoXTransformer transformer(folder.config("transformer"), folder.weights("transformer"),
                                     two_ranks(mode, config.heads, GetParam()));
    const VideoGrid grid{1, 2, 3};
    transformer.begin({.grid = grid, .text_states = text, .timesteps = timesteps});
    const auto latents = values(grid.tokens() * config.token_dim());
    expect_deadline([&] { transformer.predict(0, latents); });
  }
}

TEST_P(RankFaults, Decoders) {
  const DiffusersFolder flux(tiny_pipeline("guided")), video(tiny_pipeline("video"));
  VaeDecoder pictures(flux.config("vae"), flux.weights("vae"),
                      two_ranks(SpMode::ring, 2, GetParam()));
  const auto picture = values(6 * 4 * pictures.channels());
  expect_deadline([&] { pictures.decode(picture, 6, 4); });
  VideoDecoder frames(video.config("vae"), video.weights("vae"),
                      two_ranks(SpMode::ring, 2, GetParam()));
  const VideoLatentSize size{.frames = 3, .height = 4, .width = 2};
  const auto latents = values(3 * 4 * 2 * frames.channels());
  expect_deadline([&] { frames.decode(latents, size); });
}

// What the other rank says comes a second after it was said: too late. Or it never comes.
INSTANTIATE_TEST_SUITE_P(Links, RankFaults, testing::Values(Link{1e9, 1}, Link{1e-3, 1}),
                         [](const auto& info) {
                           return std::string(info.param.bytes_per_second > 1 ? "late" : "dead");
                         });

}  // namespace
}  // namespace braid::golden
