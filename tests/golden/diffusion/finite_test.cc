// Weights beyond finite numbers end a job with an error that names step and block.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "braid/engine/diffusion/cogvideox_transformer.h"
#include "braid/engine/diffusion/flux_transformer.h"
#include "braid/engine/diffusion/pipeline_checks.h"
#include "golden/diffusion/case.h"
#include "golden/diffusion/spoiled.h"

namespace braid::golden {
namespace {

std::vector<float> values(int64_t n) {
  return std::vector<float>(static_cast<size_t>(n), 0.1f);
}

TEST(Finite, HalvingFindsTheFirstBlock) {
  for (int64_t first = 0; first <= 57; ++first) {
    int asked = 0;
    EXPECT_EQ(first_block_beyond(57, [&](int64_t block) { return ++asked, block < first; }), first);
    EXPECT_LE(asked, 6);
  }
}

TEST(Finite, FluxNamesTheBlock) {
  const DiffusersFolder folder(tiny_pipeline("guided"));
  const FluxConfig config = read_flux_config(folder.config("transformer"));
  const auto text = values(8 * config.text_dim), pooled = values(config.pooled_dim);
  const auto latents = values(16 * config.in_channels);
  const std::vector<float> sigmas = {1, 0.5};
  const std::pair<const char*, const char*> cases[] = {
      {"x_embedder.bias", "before the blocks"},
      {"transformer_blocks.0.ff.net.2.bias", "behind block 1 of 4"},
      {"transformer_blocks.1.attn.to_out.0.bias", "behind block 2 of 4"},
      {"single_transformer_blocks.0.proj_out.bias", "behind block 3 of 4"},
      {"single_transformer_blocks.1.proj_out.bias", "behind block 4 of 4"}};
  for (const auto& [weight, where] : cases) {
    for (const int ranks : {1, 2}) {
      SCOPED_TRACE(fmt::format("{} over {}", weight, ranks));
      const Spoiled weights(folder.weights("transformer"), weight);
      NetworkConfig network{.threads = 1};
      if (ranks > 1) network.mesh = sequence_mesh(SpMode::ring, {.devices = ranks}, config.heads);
      FluxTransformer transformer(folder.config("transformer"), weights, network);
      transformer.begin(
          {.token_rows = 4, .token_columns = 4, .text = text, .pooled = pooled, .sigmas = sigmas});
      EXPECT_FALSE(all_finite(transformer.velocity(1, latents)));
      EXPECT_EQ(transformer.first_block_beyond_finite(1, latents), where);
    }
  }
}

TEST(Finite, CogVideoXNamesStepAndBlock) {
  const DiffusersFolder folder(tiny_pipeline("video"));
  const CogVideoXConfig config = read_cogvideox_config(folder.config("transformer"));
  const auto weights = std::make_shared<Spoiled>(folder.weights("transformer"),
                                                 "transformer_blocks.1.ff.net.2.bias");
  CogVideoXTransformer transformer(folder.config("transformer"), weights, {.threads = 1});
  const VideoGrid grid{.frames = 1, .rows = 2, .columns = 3};
  const auto texts = values(2 * 5 * config.text_dim);
  const std::vector<int64_t> timesteps = {900, 400};
  transformer.begin({.grid = grid, .texts = 2, .text_states = texts, .timesteps = timesteps});
  const auto latents = values(grid.tokens() * config.token_dim());
  const auto made = transformer.predict(1, latents);
  const std::vector<float> predictions(made.begin(), made.end());
  try {
    transformer.require_finite(1, 2, latents, predictions);
    FAIL() << "no error";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::kMalformed);
    EXPECT_THAT(e.what(), testing::AllOf(testing::HasSubstr("step 2 of 2: value "),
                                         testing::HasSubstr("behind block 2 of ")));
  }
}

}  // namespace
}  // namespace braid::golden
