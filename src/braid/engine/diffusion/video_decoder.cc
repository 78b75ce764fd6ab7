#include "braid/engine/diffusion/video_decoder.h"

#include "braid/parallel/picture_parallel.h"

namespace braid {

VideoDecoder::VideoDecoder(const JsonObject& config, std::shared_ptr<const WeightSource> weights,
                           const NetworkConfig& network)
    : weights_(std::move(weights)),
      config_(read_autoencoder_cogvideox_config(config)),
      ranks_(network.ranks()),
      network_("autoencoder", *weights_, network) {
  const Program program = autoencoder_cogvideox_decode(
      config_, {.frames = 1, .height = 2, .width = 2}, network_.dtype_of());
  network_.check({&program, 1}, autoencoder_cogvideox_ignores);
}

Program VideoDecoder::program_of(const VideoLatentSize& size) const {
  return autoencoder_cogvideox_decode(config_, size, network_.dtype_of(), network_.activations());
}

LayoutPlan VideoDecoder::layout_of(const Program& program, const VideoLatentSize& size) const {
  std::vector<std::string> inputs;
  for (size_t i = 0; i < cogvideox_chunks(size.frames).size(); ++i) {
    inputs.push_back(fmt::format("latents.{}", i));
  }
  return picture_parallel(program, inputs, size.height, size.width, ranks(size.height));
}

int64_t VideoDecoder::value_bytes(const VideoLatentSize& size) const {
  const Program program = program_of(size);
  if (ranks(size.height) == 1) return network_.value_bytes(program);
  return network_.value_bytes(program, layout_of(program, size));
}

BoundNetwork& VideoDecoder::bound(const VideoLatentSize& size) {
  const std::string key = fmt::format("{} x {} x {}", size.frames, size.height, size.width);
  const auto make = [&] { return program_of(size); };
  if (ranks(size.height) == 1) return network_.plan(key, make);
  return network_.plan(key, make, [&](const Program& p) { return layout_of(p, size); });
}

void VideoDecoder::each_chunk(std::span<const float> latents, const VideoLatentSize& size,
                              const TakeFrames& take) {
  BoundNetwork& network = bound(size);
  const auto inverse = static_cast<float>(1 / static_cast<double>(config_.scaling_factor));
  std::vector<float> scaled(latents.begin(), latents.end());
  for (float& z : scaled) z *= inverse;
  const std::vector<int64_t> chunks = cogvideox_chunks(size.frames);
  const int64_t frame = size.height * size.width * config_.latent_channels;
  size_t at = 0;
  for (size_t i = 0; i < chunks.size(); ++i) {
    const auto count = static_cast<size_t>(chunks[i] * frame);
    network.write(fmt::format("latents.{}", i), std::span(scaled).subspan(at, count), chunks[i]);
    at += count;
  }
  BRAID_CHECK(at == scaled.size(), "{} latents, wanted {}", scaled.size(), at);
  network.run();
  for (size_t i = 0; i < chunks.size(); ++i) {
    const int64_t odd = chunks[i] % 2;  // the first of an odd number makes a single frame
    take(network.output(i, odd + (chunks[i] - odd) * config_.time_scale()));
  }
}

std::vector<float> VideoDecoder::pixels(std::span<const float> latents,
                                        const VideoLatentSize& size) {
  std::vector<float> all;
  each_chunk(latents, size, [&](std::span<const float> frames) {
    all.insert(all.end(), frames.begin(), frames.end());
  });
  return all;
}

std::vector<float> VideoDecoder::pixels_in_tiles(std::span<const float> latents,
                                                 const VideoLatentSize& size) {
  std::vector<float> of_tile;
  return decode_in_tiles(latents, {size.frames, size.height, size.width}, tiles(), scale(),
                         [&](std::span<const float> part, int64_t h, int64_t w) {
                           of_tile = pixels(part, {size.frames, h, w});
                           return std::span<const float>(of_tile);
                         });
}

std::vector<RgbImage> VideoDecoder::decode(std::span<const float> latents,
                                           const VideoLatentSize& size, bool tiled) {
  const int64_t height = size.height * scale(), width = size.width * scale();
  const auto picture = static_cast<size_t>(height * width * 3);
  std::vector<RgbImage> pictures;
  const auto take = [&](std::span<const float> frames) {
    for (size_t begin = 0; begin < frames.size(); begin += picture) {
      pictures.push_back(rgb_image(frames.subspan(begin, picture), height, width));
    }
  };
  if (!tiled) {
    each_chunk(latents, size, take);
    return pictures;
  }
  take(pixels_in_tiles(latents, size));
  return pictures;
}

}  // namespace braid
