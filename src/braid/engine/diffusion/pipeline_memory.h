#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "braid/engine/diffusion/tiles.h"

namespace braid {

// A pipeline component's need of GPU memory, in bytes.
struct ComponentMemory {
  std::string name;
  int64_t weights = 0;
  int64_t values = 0;  // the largest Program's values, while it runs
};

// Names and weights.
std::vector<std::pair<std::string, int64_t>> weight_bytes_of(
    const std::vector<ComponentMemory>& components);

// How a pipeline's components share a GPU, in the order of their stages.
struct PipelineMemory {
  std::vector<ComponentMemory> components;
  int64_t free = 0;      // free on the GPU before the first component
  int64_t most = 0;      // used at once
  bool tiled = false;    // the decoder's values are those of a tile
  bool together = true;  // all weights stay; false: each component is freed before the next comes
};

// Sets the values of a decoder with `values_of(h, w)` for an exact decoding; for a tile if `tiles`
// says so or the exact ones do not fit. Whether for a tile. The weights stay twice, the second time
// in the order of the convolutions.
bool plan_decoder(ComponentMemory& vae, const TileGrid& grid, int64_t height, int64_t width,
                  bool tiles, int64_t free,
                  const std::function<int64_t(int64_t h, int64_t w)>& values_of);

// A GPU's libraries and graphs take a part of the `free` bytes. Fails with kResource for a
// component that is too large alone, in one line with the component, its bytes and a size that
// fits. `device` stands in messages: "cuda:0".
PipelineMemory plan_memory(std::vector<ComponentMemory> components, int64_t free,
                           const std::string& device, bool tiled = false);

// "transformer 23.8 + 1.0 GB, vae 0.1 + 5.3 GB; ..., 80.0 GB free".
std::string to_string(const PipelineMemory& memory);

}  // namespace braid
