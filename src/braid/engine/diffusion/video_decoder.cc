#include "braid/engine/diffusion/video_decoder.h"

namespace braid {

VideoDecoder::VideoDecoder(const JsonObject& config, std::shared_ptr<const WeightSource> weights,
                           const NetworkConfig& network)
    : weights_(std::move(weights)),
      config_(read_autoencoder_cogvideox_config(config)),
      network_("autoencoder", *weights_, network) {
  const Program program = autoencoder_cogvideox_decode(
      config_, {.frames = 1, .height = 2, .width = 2}, network_.dtype_of());
  network_.check({&program, 1}, autoencoder_cogvideox_ignores);
}

BoundNetwork& VideoDecoder::bound(const VideoLatentSize& size) {
  return network_.plan(fmt::format("{} x {} x {}", size.frames, size.height, size.width), [&] {
    return autoencoder_cogvideox_decode(config_, size, network_.dtype_of(), network_.activations());
  });
}

std::vector<float> VideoDecoder::pixels(std::span<const float> latents,
                                        const VideoLatentSize& size) {
  BoundNetwork& network = bound(size);
  const auto inverse = static_cast<float>(1 / static_cast<double>(config_.scaling_factor));
  std::vector<float> scaled(latents.begin(), latents.end());
  for (float& z : scaled) z *= inverse;
  const std::vector<int64_t> chunks = cogvideox_chunks(size.frames);
  size_t at = 0;
  for (size_t i = 0; i < chunks.size(); ++i) {
    const auto count =
        static_cast<size_t>(chunks[i] * size.height * size.width * config_.latent_channels);
    network.write(fmt::format("latents.{}", i), std::span(scaled).subspan(at, count));
    at += count;
  }
  BRAID_CHECK(at == scaled.size(), "{} latents, wanted {}", scaled.size(), at);
  network.run();
  std::vector<float> all;
  for (size_t i = 0; i < chunks.size(); ++i) {
    const std::span<const float> chunk = network.output(i);
    all.insert(all.end(), chunk.begin(), chunk.end());
  }
  return all;
}

std::vector<RgbImage> VideoDecoder::decode(std::span<const float> latents,
                                           const VideoLatentSize& size) {
  const std::vector<float> all = pixels(latents, size);
  const int64_t height = size.height * scale(), width = size.width * scale();
  const auto picture = static_cast<size_t>(height * width * 3);
  std::vector<RgbImage> frames;
  for (size_t begin = 0; begin < all.size(); begin += picture) {
    frames.push_back(rgb_image(std::span(all).subspan(begin, picture), height, width));
  }
  return frames;
}

}  // namespace braid
