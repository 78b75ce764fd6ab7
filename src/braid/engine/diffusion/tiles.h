#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "braid/model/autoencoder_cogvideox.h"
#include "braid/model/autoencoder_kl.h"

namespace braid {

// Tiles of a picture, each decoded alone: neighbours overlap, and their pixels blend there. Another
// picture than an exact decoding makes, since norms and attention see a single tile.
struct TileGrid {
  int64_t height = 0, width = 0;  // of a tile, in latents
  int64_t rows = 0, columns = 0;  // from a tile's begin to the next tile's, in latents

  bool divides(int64_t h, int64_t w) const { return h > height || w > width; }
  bool operator==(const TileGrid&) const = default;
};

// diffusers' tiles: squares of the model's sample size, of which a quarter overlaps; for videos a
// quarter of a frame in training, of which a sixth of the rows and a fifth of the columns overlap.
TileGrid tiles_of(const AutoencoderKlConfig& config);
TileGrid tiles_of(const AutoencoderCogVideoXConfig& config);

// A tile's latents [F * h * w, C] to its pixels f32 [T * h * scale * w * scale, 3].
using DecodeTile =
    std::function<std::span<const float>(std::span<const float> latents, int64_t h, int64_t w)>;

// Latents [F * size.height * size.width, C] to pixels [T * H * W, 3], as diffusers' tiled_decode:
// a tile takes over from the tile above, then from the tile on the left, by linear weights.
std::vector<float> decode_in_tiles(std::span<const float> latents, const LatentSize& size,
                                   const TileGrid& grid, int64_t scale, const DecodeTile& decode);

}  // namespace braid
