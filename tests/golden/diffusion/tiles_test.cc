// Decoders in tiles: blended as diffusers does, and the identity where tiles know no neighbours.
#include "braid/engine/diffusion/tiles.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "braid/engine/diffusion/flux_pipeline.h"
#include "braid/engine/diffusion/vae_decoder.h"
#include "braid/engine/diffusion/video_decoder.h"
#include "golden/diffusion/case.h"
#include "golden/diffusion/differences.h"

namespace braid::golden {
namespace {

TEST(Tiles, BlendAsDiffusers) {
  const SafetensorsFile golden(diffusion_golden("tiles.safetensors"));
  for (const std::string kind : {"guided", "fast"}) {
    SCOPED_TRACE(kind);
    const DiffusersFolder folder(tiny_pipeline(kind));
    const JsonObject config = folder.config("vae");
    const AutoencoderKlConfig c = read_autoencoder_kl_config(config);
    VaeDecoder decoder(config, folder.weights("vae"), {.threads = 2});
    const Shape z = golden.get(kind + ".latents").shape;
    EXPECT_TRUE(decoder.tiles().divides(z[0], z[1]));
    std::vector<float> latents = tensor<float>(golden, kind + ".latents");
    for (float& v : latents) v = (v - c.shift_factor) * c.scaling_factor;
    const auto want = tensor<float>(golden, kind + ".image");
    EXPECT_LT(worst_difference(decoder.decode_tiles(latents, z[0], z[1]), want), 5e-5);
    const auto exact = decoder.decode(latents, z[0], z[1]);
    EXPECT_GT(worst_difference(exact, want), 1e-3) << "tiles are not exact";
  }
}

// Chunks of several latent frames, and tiles of a row or a column of latents at the edges.
TEST(Tiles, OfVideosBlendAsDiffusers) {
  const SafetensorsFile golden(diffusion_golden("video_tiles.safetensors"));
  for (const std::string kind : {"video_rotary", "video", "video_pairs"}) {
    SCOPED_TRACE(kind);
    const DiffusersFolder folder(tiny_pipeline(kind));
    nlohmann::json config = folder.config("vae").value();
    const auto sample = tensor<int32_t>(golden, kind + ".sample");
    config["sample_height"] = sample[0], config["sample_width"] = sample[1];
    const JsonObject changed("config.json", config);
    const float factor = read_autoencoder_cogvideox_config(changed).scaling_factor;
    VideoDecoder decoder(changed, folder.weights("vae"), {.threads = 2});
    const Shape z = golden.get(kind + ".latents").shape;
    const VideoLatentSize size{.frames = z[0], .height = z[1], .width = z[2]};
    EXPECT_TRUE(decoder.tiles().divides(z[1], z[2]));
    std::vector<float> latents = tensor<float>(golden, kind + ".latents");
    for (float& v : latents) v *= factor;
    const auto want = tensor<float>(golden, kind + ".frames");
    EXPECT_LT(worst_difference(decoder.pixels_in_tiles(latents, size), want), 5e-5);
    EXPECT_GT(worst_difference(decoder.pixels(latents, size), want), 1e-3) << "not exact";
  }
}

// A decoder that repeats latents sees no neighbours, so that every grid gives the whole picture.
TEST(Tiles, CoverEveryPixelOnce) {
  const uint32_t seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  const auto below = [&](int64_t n) { return 1 + static_cast<int64_t>(random() % n); };
  for (int round = 0; round < 40; ++round) {
    const LatentSize size{.batch = below(3), .height = below(23), .width = below(19)};
    const int64_t scale = below(3);
    TileGrid grid{.height = below(9), .width = below(9)};
    grid.rows = below(grid.height), grid.columns = below(grid.width);
    SCOPED_TRACE(fmt::format("{} frames of {} x {}, tiles of {} x {} every {} x {}", size.batch,
                             size.height, size.width, grid.height, grid.width, grid.rows,
                             grid.columns));
    std::vector<float> latents(static_cast<size_t>(size.batch * size.height * size.width * 3));
    for (float& x : latents) x = static_cast<float>(random() % 1000);
    std::vector<float> made;
    const auto repeat = [&](std::span<const float> part, int64_t h, int64_t w) {
      EXPECT_EQ(std::ssize(part), size.batch * h * w * 3);
      made.clear();
      for (int64_t line = 0; line < size.batch * h * scale; ++line) {
        for (int64_t x = 0; x < w * scale; ++x) {
          const auto at = part.begin() + (((line / scale * w) + (x / scale)) * 3);
          made.insert(made.end(), at, at + 3);
        }
      }
      return std::span<const float>(made);
    };
    const auto got = decode_in_tiles(latents, size, grid, scale, repeat);
    repeat(latents, size.height, size.width);
    EXPECT_LT(worst_difference(got, made), 1e-3);
  }
}

// On GPUs tiles come by themselves, but only where an exact decoding does not fit.
TEST(Tiles, ComeWhereExactDoesNotFit) {
  constexpr int64_t kGb = 1000000000;
  const TileGrid grid{.height = 10, .width = 10, .rows = 7, .columns = 7};
  const auto values = [](int64_t h, int64_t w) { return h * w * kGb / 10; };
  const auto planned = [&](int64_t h, int64_t w, bool wanted, int64_t free) {
    ComponentMemory vae{.name = "vae", .weights = kGb};
    const bool tiled = plan_decoder(vae, {grid, h, w, values}, wanted, MemoryRoom::of_gpu(0, free));
    return std::pair(tiled, vae.values / kGb);
  };
  using Plan = std::pair<bool, int64_t>;
  EXPECT_EQ(planned(20, 20, false, 80 * kGb), Plan(false, 41));
  EXPECT_EQ(planned(20, 20, true, 80 * kGb), Plan(true, 11));
  EXPECT_EQ(planned(20, 20, false, 30 * kGb), Plan(true, 11));
  EXPECT_EQ(planned(20, 5, false, 8 * kGb), Plan(true, 6));
  EXPECT_EQ(planned(10, 10, true, 80 * kGb), Plan(false, 11));
  EXPECT_EQ(planned(10, 10, false, 5 * kGb), Plan(false, 11));
}

// Only on request on CPUs, with a remark; a picture within a tile stays exact.
TEST(Tiles, ThePipelineSaysSo) {
  FluxPipeline pipeline(tiny_pipeline("guided"), {.threads = 1});
  ImageRequest request{.prompt = "a red box",
                       .width = 40,
                       .height = 24,
                       .steps = 1,
                       .guidance = 3.5,
                       .text_tokens = 9,
                       .seed = 1};
  std::vector<uint8_t> picture;
  request.on_image = [&](int64_t, const RgbImage& image) { picture = image.pixels; };
  EXPECT_THAT(pipeline.generate(request).remarks, testing::IsEmpty());
  EXPECT_FALSE(pipeline.tiled());
  const std::vector<uint8_t> exact = picture;
  request.tiles = true;
  EXPECT_THAT(pipeline.generate(request).remarks,
              testing::ElementsAre(testing::HasSubstr("tiles of 32 x 32 pixels")));
  EXPECT_TRUE(pipeline.tiled());
  EXPECT_NE(picture, exact);
  request.width = 32;
  EXPECT_THAT(pipeline.generate(request).remarks, testing::IsEmpty());
}

}  // namespace
}  // namespace braid::golden
