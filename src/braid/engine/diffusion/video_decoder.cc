#include "braid/engine/diffusion/video_decoder.h"

#include <algorithm>

#include "braid/parallel/picture_parallel.h"

namespace braid {
namespace {

// Copies frames [T, H, row] to bands of P ranks, rank r's [T, H_r, row] behind rank r - 1's, or
// `back` from bands to frames. Heights are in `unit` rows of pixels for each row that is divided.
void move_bands(std::span<const float> from, std::span<float> to, int64_t height, int64_t row,
                int64_t unit, int P, bool back) {
  const int64_t frame = height * unit * row, frames = std::ssize(from) / frame;
  int64_t at = 0;
  for (int r = 0; r < P; ++r) {
    const Range rows = even_part(height, P, r);
    const int64_t n = rows.size() * unit * row;
    for (int64_t t = 0; t < frames; ++t, at += n) {
      const int64_t whole = (t * frame) + (rows.begin * unit * row);
      std::copy_n(from.begin() + (back ? at : whole), n, to.begin() + (back ? whole : at));
    }
  }
}

}  // namespace

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

BoundNetwork& VideoDecoder::bound(const VideoLatentSize& size) {
  const std::string key = fmt::format("{} x {} x {}", size.frames, size.height, size.width);
  const auto make = [&] {
    return autoencoder_cogvideox_decode(config_, size, network_.dtype_of(), network_.activations());
  };
  const int P = ranks(size.height);
  if (P == 1) return network_.plan(key, make);
  return network_.plan(key, make, [&](const Program& program) {
    std::vector<std::string> inputs;
    for (size_t i = 0; i < cogvideox_chunks(size.frames).size(); ++i) {
      inputs.push_back(fmt::format("latents.{}", i));
    }
    return picture_parallel(program, inputs, size.height, size.width, P);
  });
}

std::vector<float> VideoDecoder::pixels(std::span<const float> latents,
                                        const VideoLatentSize& size) {
  BoundNetwork& network = bound(size);
  const auto inverse = static_cast<float>(1 / static_cast<double>(config_.scaling_factor));
  std::vector<float> scaled(latents.begin(), latents.end());
  for (float& z : scaled) z *= inverse;
  const std::vector<int64_t> chunks = cogvideox_chunks(size.frames);
  const int P = ranks(size.height);
  const int64_t row = size.width * config_.latent_channels;
  size_t at = 0;
  for (size_t i = 0; i < chunks.size(); ++i) {
    const auto count = static_cast<size_t>(chunks[i] * size.height * row);
    std::vector<float> bands(count);
    move_bands(std::span(scaled).subspan(at, count), bands, size.height, row, 1, P, false);
    network.write(fmt::format("latents.{}", i), bands);
    at += count;
  }
  BRAID_CHECK(at == scaled.size(), "{} latents, wanted {}", scaled.size(), at);
  network.run();
  std::vector<float> all;
  const int64_t picture = size.height * size.width * scale() * scale() * 3;
  all.reserve(static_cast<size_t>(size.frames * config_.time_scale() * picture));
  for (size_t i = 0; i < chunks.size(); ++i) {
    const std::span<const float> chunk = network.output(i);
    all.resize(all.size() + chunk.size());
    move_bands(chunk, std::span(all).last(chunk.size()), size.height, 3 * size.width * scale(),
               scale(), P, true);
  }
  return all;
}

std::vector<RgbImage> VideoDecoder::decode(std::span<const float> latents,
                                           const VideoLatentSize& size, bool tiled) {
  std::vector<float> all;  // of a tile, then of all
  const auto tile = [&](std::span<const float> part, int64_t h, int64_t w) {
    all = pixels(part, {.frames = size.frames, .height = h, .width = w});
    return std::span<const float>(all);
  };
  if (tiled) {
    all = decode_in_tiles(latents, {size.frames, size.height, size.width}, tiles(), scale(), tile);
  } else {
    tile(latents, size.height, size.width);
  }
  const int64_t height = size.height * scale(), width = size.width * scale();
  const auto picture = static_cast<size_t>(height * width * 3);
  std::vector<RgbImage> frames;
  for (size_t begin = 0; begin < all.size(); begin += picture) {
    frames.push_back(rgb_image(std::span(all).subspan(begin, picture), height, width));
  }
  return frames;
}

}  // namespace braid
