#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "braid/engine/diffusion/network.h"
#include "braid/engine/diffusion/tiles.h"
#include "braid/io/json_object.h"
#include "braid/model/autoencoder_kl.h"

namespace braid {

// The decoder of a pipeline's autoencoder, "vae": latents become pixels.
class VaeDecoder {
 public:
  // Fails as read_autoencoder_kl_config and Network::check do.
  VaeDecoder(const JsonObject& config, std::shared_ptr<const WeightSource> weights,
             const NetworkConfig& network);

  const Network& network() const { return network_; }

  int64_t scale() const { return config_.scale(); }  // pixels of a latent, along an axis
  int64_t channels() const { return config_.latent_channels; }
  // The number of ranks that decode a picture with `height` rows of latents: a single rank if the
  // rows are fewer than the network's ranks, otherwise all ranks.
  int ranks(int64_t height) const { return height < ranks_ ? 1 : ranks_; }
  // The bound Program of a size.
  BoundNetwork& bound(int64_t height, int64_t width);
  // Bytes of values that a device needs for a size, as of Network.
  int64_t value_bytes(int64_t height, int64_t width) const;
  // f32 [height * width, channels()], as the transformer leaves them, to f32 [H * W, 3] from -1 to
  // 1, valid until the next call; sides in latents.
  std::span<const float> decode(std::span<const float> latents, int64_t height, int64_t width);
  // The same in tiles(), not exact, with the memory of a tile.
  std::vector<float> decode_tiles(std::span<const float> latents, int64_t height, int64_t width);
  TileGrid tiles() const { return tiles_of(config_); }

 private:
  Program program_of(int64_t height, int64_t width) const;

  std::shared_ptr<const WeightSource> weights_;
  AutoencoderKlConfig config_;
  const int ranks_;
  Network network_;
};

}  // namespace braid
