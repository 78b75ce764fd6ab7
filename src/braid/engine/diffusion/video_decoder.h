#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "braid/engine/diffusion/network.h"
#include "braid/engine/diffusion/tiles.h"
#include "braid/io/json_object.h"
#include "braid/io/media/rgb_image.h"
#include "braid/model/autoencoder_cogvideox.h"

namespace braid {

// The decoder of a video pipeline's autoencoder, "vae": latents become pictures.
class VideoDecoder {
 public:
  // Fails as read_autoencoder_cogvideox_config and Network::check do.
  VideoDecoder(const JsonObject& config, std::shared_ptr<const WeightSource> weights,
               const NetworkConfig& network);

  const Network& network() const { return network_; }
  int64_t scale() const { return config_.scale(); }  // pixels of a latent, along an axis
  int64_t channels() const { return config_.latent_channels; }
  // The number of ranks that divide rows of frames with `height` latent rows: a single rank for
  // fewer rows than ranks, otherwise all ranks.
  int ranks(int64_t height) const { return height < ranks_ ? 1 : ranks_; }

  // The bound Program of a size.
  BoundNetwork& bound(const VideoLatentSize& size);
  // Bytes of values that a device needs for a size, as of Network.
  int64_t value_bytes(const VideoLatentSize& size) const;
  // f32 [frames * height * width, channels()], as the transformer leaves them, to pictures: for an
  // odd number of frames the model's time_scale() * (frames - 1) + 1. `tiled`: in tiles(), not
  // exact, with the memory of a tile.
  std::vector<RgbImage> decode(std::span<const float> latents, const VideoLatentSize& size,
                               bool tiled = false);
  TileGrid tiles() const { return tiles_of(config_); }
  // The same as f32 [frames * H * W, 3] from -1 to 1, not cut.
  std::vector<float> pixels(std::span<const float> latents, const VideoLatentSize& size);
  // The same in tiles().
  std::vector<float> pixels_in_tiles(std::span<const float> latents, const VideoLatentSize& size);
  // As pixels(), some frames at a time in order; a span is valid within the call.
  using TakeFrames = std::function<void(std::span<const float> frames)>;
  void each_chunk(std::span<const float> latents, const VideoLatentSize& size,
                  const TakeFrames& take);

 private:
  Program program_of(const VideoLatentSize& size) const;
  // Rows of pixels over ranks.
  LayoutPlan layout_of(const Program& program, const VideoLatentSize& size) const;

  std::shared_ptr<const WeightSource> weights_;
  AutoencoderCogVideoXConfig config_;
  const int ranks_;
  Network network_;
};

}  // namespace braid
