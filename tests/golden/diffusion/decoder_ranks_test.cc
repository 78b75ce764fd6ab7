// The autoencoders' decoders over ranks that divide a picture's rows, or those of a video's frames:
// the same as on one rank, at odd sizes, too.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "braid/engine/diffusion/torch_generator.h"
#include "braid/engine/diffusion/vae_decoder.h"
#include "braid/engine/diffusion/video_decoder.h"
#include "golden/diffusion/case.h"
#include "golden/diffusion/differences.h"

namespace braid::golden {
namespace {

template <class Decoder = VaeDecoder>
Decoder decoder_of(const std::string& kind, int ranks, int machines = 1) {
  const DiffusersFolder folder(tiny_pipeline(kind));
  NetworkConfig network{.threads = 1};
  if (ranks > 1) {
    const Topology topology{.machines = machines, .devices = ranks / machines};
    network.mesh = sequence_mesh(SpMode::ring, topology, ranks);
  }
  return {folder.config("vae"), folder.weights("vae"), network};
}

void expect_near(const std::vector<float>& got, const std::vector<float>& want) {
  EXPECT_LE(worst_difference(got, want), 1e-5);
}

std::vector<float> picture(VaeDecoder& decoder, int64_t height, int64_t width) {
  std::vector<float> latents(static_cast<size_t>(height * width * decoder.channels()));
  TorchGenerator(5).normals(latents);
  const std::span<const float> pixels = decoder.decode(latents, height, width);
  return {pixels.begin(), pixels.end()};
}

TEST(DecoderRanks, EqualOneRank) {
  for (const char* kind : {"guided", "fast"}) {
    VaeDecoder alone = decoder_of(kind, 1);
    for (int ranks : {2, 3, 4, 5, 8}) {
      VaeDecoder divided = decoder_of(kind, ranks, ranks == 4 ? 2 : 1);
      for (const auto& [height, width] : {std::pair<int64_t, int64_t>{9, 5}, {8, 12}, {13, 1}}) {
        SCOPED_TRACE(fmt::format("{}, {} ranks, {} x {}", kind, ranks, height, width));
        expect_near(picture(divided, height, width), picture(alone, height, width));
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

// Ops of rank 0 by kind.
std::map<std::string_view, int> kinds_of(const BoundNetwork& bound) {
  std::map<std::string_view, int> kinds;
  for (const Op& op : bound.executor(0).program().ops) ++kinds[op.def->kind];
  return kinds;
}

// Of convolutions with 3 rows of taps only the first and those behind upsampling copy their rows.
TEST(DecoderRanks, NormsWriteTheHalo) {
  VaeDecoder divided = decoder_of("fast", 3);
  auto kinds = kinds_of(divided.bound(8, 4));
  EXPECT_GT(kinds["group_norm_by"], 5);
  EXPECT_EQ(kinds["edge_rows"], kinds["group_norm_by"] - 1 + kinds["with_halo"]);  // attention: no
  EXPECT_LT(kinds["with_halo"], 5);
}

TEST(DecoderRanks, FewerRowsThanRanksAreDecodedByOne) {
  VaeDecoder alone = decoder_of("fast", 1), divided = decoder_of("fast", 4);
  EXPECT_EQ(divided.ranks(3), 1);
  EXPECT_EQ(picture(divided, 3, 4), picture(alone, 3, 4));
}

std::vector<float> video(VideoDecoder& decoder, const VideoLatentSize& size) {
  const int64_t n = size.frames * size.height * size.width * decoder.channels();
  std::vector<float> latents(static_cast<size_t>(n));
  TorchGenerator(7).normals(latents);
  return decoder.pixels(latents, size);
}

// One frame, chunks of three and of two frames, and frames before a chunk.
TEST(VideoDecoderRanks, EqualOneRank) {
  for (const char* kind : {"video", "video_pairs"}) {
    VideoDecoder alone = decoder_of<VideoDecoder>(kind, 1);
    for (int ranks : {2, 3, 4, 8}) {
      VideoDecoder divided = decoder_of<VideoDecoder>(kind, ranks, ranks == 4 ? 2 : 1);
      for (const VideoLatentSize& size :
           {VideoLatentSize{1, 9, 2}, {2, 8, 3}, {3, 8, 1}, {5, 11, 2}}) {
        SCOPED_TRACE(fmt::format("{}, {} ranks, {} x {} x {}", kind, ranks, size.frames,
                                 size.height, size.width));
        expect_near(video(divided, size), video(alone, size));
        EXPECT_EQ(divided.ranks(size.height), ranks);
      }
    }
  }
}

TEST(VideoDecoderRanks, EachRankConvolvesItsRows) {
  VideoDecoder divided = decoder_of<VideoDecoder>("video", 3);
  BoundNetwork& bound = divided.bound({.frames = 3, .height = 8, .width = 4});
  int64_t rows = 0;
  for (int r = 0; r < 3; ++r) {
    const Program& program = bound.executor(r).program();
    const int64_t own = program.value(program.outputs[0]).type.shape[0];
    EXPECT_LT(own, 9 * 4 * 4 * divided.scale() * divided.scale());  // at most 3 rows of latents
    rows += own;
  }
  EXPECT_EQ(rows, 9 * 8 * 4 * divided.scale() * divided.scale());
}

// Frames before a chunk have their halo from the chunk before: an exchange for each convolution.
TEST(VideoDecoderRanks, KeptFramesKeepTheirHalo) {
  VideoDecoder divided = decoder_of<VideoDecoder>("video", 3);
  const auto exchanges = [&](int64_t frames) {
    return kinds_of(divided.bound({.frames = frames, .height = 8, .width = 4}))["with_halo"];
  };
  EXPECT_EQ(exchanges(5), 2 * exchanges(3));
  EXPECT_EQ(exchanges(7), 3 * exchanges(3));
}

TEST(VideoDecoderRanks, FewerRowsThanRanksAreDecodedByOne) {
  VideoDecoder alone = decoder_of<VideoDecoder>("video", 1);
  VideoDecoder divided = decoder_of<VideoDecoder>("video", 4);
  EXPECT_EQ(divided.ranks(3), 1);
  const VideoLatentSize size{.frames = 2, .height = 3, .width = 4};
  EXPECT_EQ(video(divided, size), video(alone, size));
}

}  // namespace
}  // namespace braid::golden
