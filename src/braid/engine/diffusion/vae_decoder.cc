#include "braid/engine/diffusion/vae_decoder.h"

namespace braid {

VaeDecoder::VaeDecoder(const DiffusersFolder& folder, const NetworkConfig& network,
                       const std::string& variant)
    : weights_(folder.weights("vae", variant)),
      config_(read_autoencoder_kl_config(folder.config("vae"))),
      network_("autoencoder", *weights_, network) {
  if (config_.out_channels != 3) {
    fail(ErrorCode::kUnsupported, "{}: makes pictures of {} channels, wanted are 3",
         weights_->path(), config_.out_channels);
  }
  const Program program =
      autoencoder_kl_decode(config_, {.height = 2, .width = 2}, network_.dtype_of());
  network_.check({&program, 1}, autoencoder_kl_ignores);
}

std::vector<float> VaeDecoder::decode(std::span<const float> latents, int64_t height,
                                      int64_t width) {
  BoundNetwork& network = network_.plan(fmt::format("{} x {}", height, width), [&] {
    return autoencoder_kl_decode(config_, {.height = height, .width = width}, network_.dtype_of());
  });
  std::vector<float> scaled(latents.begin(), latents.end());
  for (float& z : scaled) z = z / config_.scaling_factor + config_.shift_factor;
  network.write("latents", scaled);
  network.run();
  const auto pixels = network.output(0);
  return {pixels.begin(), pixels.end()};
}

}  // namespace braid
