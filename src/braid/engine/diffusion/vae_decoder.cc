#include "braid/engine/diffusion/vae_decoder.h"

#include "braid/parallel/picture_parallel.h"

namespace braid {

VaeDecoder::VaeDecoder(const JsonObject& config, std::shared_ptr<const WeightSource> weights,
                       const NetworkConfig& network)
    : weights_(std::move(weights)),
      config_(read_autoencoder_kl_config(config)),
      ranks_(network.ranks()),
      network_("autoencoder", *weights_, network) {
  if (config_.out_channels != 3) {
    fail(ErrorCode::kUnsupported, "{}: makes pictures of {} channels, wanted are 3",
         weights_->path(), config_.out_channels);
  }
  const Program program =
      autoencoder_kl_decode(config_, {.height = 2, .width = 2}, network_.dtype_of());
  network_.check({&program, 1}, autoencoder_kl_ignores);
}

Program VaeDecoder::program_of(int64_t height, int64_t width) const {
  return autoencoder_kl_decode(config_, {.height = height, .width = width}, network_.dtype_of(),
                               network_.activations());
}

int64_t VaeDecoder::value_bytes(int64_t height, int64_t width) const {
  const Program program = program_of(height, width);
  const int P = ranks(height);
  if (P == 1) return network_.value_bytes(program);
  return network_.value_bytes(program, picture_parallel(program, {"latents"}, height, width, P));
}

BoundNetwork& VaeDecoder::bound(int64_t height, int64_t width) {
  const auto make = [&] { return program_of(height, width); };
  const int P = ranks(height);
  const std::string key = fmt::format("{} x {}", height, width);
  if (P == 1) return network_.plan(key, make);
  return network_.plan(key, make, [&](const Program& program) {
    return picture_parallel(program, {"latents"}, height, width, P);
  });
}

std::span<const float> VaeDecoder::decode(std::span<const float> latents, int64_t height,
                                          int64_t width) {
  BoundNetwork& network = bound(height, width);
  std::vector<float> scaled(latents.begin(), latents.end());
  for (float& z : scaled) z = z / config_.scaling_factor + config_.shift_factor;
  network.write("latents", scaled);
  network.run();
  return network.output(0);
}

std::vector<float> VaeDecoder::decode_tiles(std::span<const float> latents, int64_t height,
                                            int64_t width) {
  return decode_in_tiles(
      latents, {.height = height, .width = width}, tiles(), scale(),
      [this](std::span<const float> part, int64_t h, int64_t w) { return decode(part, h, w); });
}

}  // namespace braid
