#include "braid/engine/diffusion/tiles.h"

#include <algorithm>
#include <utility>

#include "braid/base/error.h"

namespace braid {
namespace {

// Pixels of all frames: [T, height, width, 3].
struct Tile {
  int64_t height = 0, width = 0;
  std::vector<float> pixels;

  int64_t frames() const { return std::ssize(pixels) / (height * width * 3); }
  float* at(int64_t t, int64_t y, int64_t x) {
    return pixels.data() + ((((t * height) + y) * width) + x) * 3;
  }
};

// The first rows of `to` under `above`, or its first columns beside it.
void blend(Tile& above, Tile& to, int64_t extent, bool rows) {
  const int64_t n =
      std::min({rows ? above.height : above.width, rows ? to.height : to.width, extent});
  const int64_t across = rows ? to.width : to.height;
  for (int64_t t = 0; t < to.frames(); ++t) {
    for (int64_t i = 0; i < n; ++i) {
      const float part = static_cast<float>(i) / static_cast<float>(n);
      for (int64_t j = 0; j < across; ++j) {
        const float* a =
            rows ? above.at(t, above.height - n + i, j) : above.at(t, j, above.width - n + i);
        float* b = rows ? to.at(t, i, j) : to.at(t, j, i);
        for (int c = 0; c < 3; ++c) b[c] = (a[c] * (1 - part)) + (b[c] * part);
      }
    }
  }
}

}  // namespace

TileGrid tiles_of(const AutoencoderKlConfig& config) {
  const int64_t side = std::max<int64_t>(4, config.sample_size / config.scale());
  return {side, side, side * 3 / 4, side * 3 / 4};
}

TileGrid tiles_of(const AutoencoderCogVideoXConfig& config) {
  const int64_t height = std::max<int64_t>(6, config.sample_height / 2 / config.scale());
  const int64_t width = std::max<int64_t>(5, config.sample_width / 2 / config.scale());
  return {height, width, height * 5 / 6, width * 4 / 5};
}

std::vector<float> decode_in_tiles(std::span<const float> latents, const LatentSize& size,
                                   const TileGrid& grid, int64_t scale, const DecodeTile& decode) {
  BRAID_CHECK(
      grid.rows > 0 && grid.columns > 0 && grid.rows <= grid.height && grid.columns <= grid.width,
      "tiles of {} x {} every {} x {}", grid.height, grid.width, grid.rows, grid.columns);
  const int64_t H = size.height * scale, W = size.width * scale;
  const int64_t C = std::ssize(latents) / (size.batch * size.height * size.width);
  std::vector<float> made;
  std::vector<Tile> above, row;  // tiles of two rows, side by side
  for (int64_t y = 0; y < size.height; y += grid.rows) {
    for (int64_t x = 0; x < size.width; x += grid.columns) {
      const int64_t h = std::min(grid.height, size.height - y);
      const int64_t w = std::min(grid.width, size.width - x);
      std::vector<float> part;
      for (int64_t line = 0; line < size.batch * h; ++line) {
        const int64_t from = (line / h * size.height) + y + (line % h);
        const auto begin = latents.begin() + (((from * size.width) + x) * C);
        part.insert(part.end(), begin, begin + (w * C));
      }
      const std::span<const float> pixels = decode(part, h, w);
      Tile tile{h * scale, w * scale, {pixels.begin(), pixels.end()}};
      const size_t column = row.size();
      if (y > 0) blend(above[column], tile, (grid.height - grid.rows) * scale, true);
      if (x > 0) blend(row.back(), tile, (grid.width - grid.columns) * scale, false);
      row.push_back(std::move(tile));
    }
    for (size_t column = 0; column < row.size(); ++column) {
      Tile& tile = row[column];
      const int64_t x = static_cast<int64_t>(column) * grid.columns * scale;
      const int64_t rows = std::min(tile.height, grid.rows * scale);
      const int64_t columns = std::min(tile.width, grid.columns * scale);
      made.resize(static_cast<size_t>(tile.frames() * H * W * 3));
      for (int64_t line = 0; line < tile.frames() * rows; ++line) {
        const int64_t t = line / rows, in_tile = line % rows;
        const int64_t to = (((((t * H) + (y * scale) + in_tile) * W) + x) * 3);
        std::copy_n(tile.at(t, in_tile, 0), columns * 3, made.begin() + to);
      }
    }
    above = std::exchange(row, {});
  }
  return made;
}

}  // namespace braid
