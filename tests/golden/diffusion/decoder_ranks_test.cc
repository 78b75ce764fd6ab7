// The autoencoder's decoder over ranks that divide a picture's rows: the same as on one rank, at
// odd sizes, too.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "braid/engine/diffusion/torch_generator.h"
#include "braid/engine/diffusion/vae_decoder.h"
#include "golden/diffusion/case.h"

namespace braid::golden {
namespace {

VaeDecoder decoder_of(const std::string& kind, int ranks, int machines = 1) {
  const DiffusersFolder folder(tiny_pipeline(kind));
  NetworkConfig network{.threads = 1};
  if (ranks > 1) {
    const Topology topology{.machines = machines, .devices = ranks / machines};
    network.mesh = sequence_mesh(SpMode::ring, topology, ranks);
  }
  return {folder.config("vae"), folder.weights("vae"), network};
}

std::vector<float> picture(VaeDecoder& decoder, int64_t height, int64_t width) {
  std::vector<float> latents(static_cast<size_t>(height * width * decoder.channels()));
  TorchGenerator(5).normals(latents);
  return decoder.decode(latents, height, width);
}

TEST(DecoderRanks, EqualOneRank) {
  for (const char* kind : {"guided", "fast"}) {
    VaeDecoder alone = decoder_of(kind, 1);
    for (int ranks : {2, 3, 4, 5, 8}) {
      VaeDecoder divided = decoder_of(kind, ranks, ranks == 4 ? 2 : 1);
      for (const auto& [height, width] : {std::pair<int64_t, int64_t>{9, 5}, {8, 12}, {13, 1}}) {
        SCOPED_TRACE(fmt::format("{}, {} ranks, {} x {}", kind, ranks, height, width));
        const auto want = picture(alone, height, width), got = picture(divided, height, width);
        ASSERT_EQ(got.size(), want.size());
        double worst = 0;
        for (size_t i = 0; i < got.size(); ++i) {
          const double d = std::abs(static_cast<double>(got[i]) - want[i]);
          worst = std::isnan(d) ? INFINITY : std::max(worst, d);
        }
        EXPECT_LE(worst, 1e-5);
        EXPECT_EQ(divided.ranks(height), ranks);
      }
    }
  }
}

// No rank has the rows of another but for the halo.
TEST(DecoderRanks, EachRankConvolvesItsRows) {
  VaeDecoder divided = decoder_of("fast", 3);
  BoundNetwork& bound = divided.bound(8, 4);
  int64_t rows = 0;
  for (int r = 0; r < 3; ++r) {
    const Program& program = bound.executor(r).program();
    rows += program.value(program.outputs[0]).type.shape[0];
  }
  EXPECT_EQ(rows, 8 * 4 * divided.scale() * divided.scale());
}

TEST(DecoderRanks, FewerRowsThanRanksAreDecodedByOne) {
  VaeDecoder alone = decoder_of("fast", 1), divided = decoder_of("fast", 4);
  EXPECT_EQ(divided.ranks(3), 1);
  EXPECT_EQ(picture(divided, 3, 4), picture(alone, 3, 4));
}

}  // namespace
}  // namespace braid::golden
