#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "braid/engine/diffusion/tiles.h"

namespace braid {

// A pipeline component's need of a device's memory, in bytes.
struct ComponentMemory {
  std::string name;
  int64_t weights = 0;
  // The largest Program's values, while it runs: a GPU's for its rank, on CPUs all ranks'.
  int64_t values = 0;
  bool mapped = false;  // weights are pages of a file, which the system may drop and read again

  int64_t needs() const { return values + (mapped ? 0 : weights); }
  bool encodes_text() const { return name.starts_with("text_encoder"); }
};

// Names and weights.
std::vector<std::pair<std::string, int64_t>> weight_bytes_of(
    const std::vector<ComponentMemory>& components);

// Where text encoders compute: on the first GPU; there, and freed before the steps; on the CPU.
enum class EncoderPlace : uint8_t { automatic, gpu, load, cpu };
std::string_view to_string(EncoderPlace place);  // "auto", "gpu", "load", "cpu"

struct EncoderChoice {
  EncoderPlace place = EncoderPlace::cpu;  // never `automatic`
  std::string why;                         // for users
};

// A device's memory for a pipeline.
struct MemoryRoom {
  std::string device;    // in messages: "cuda:0"
  int64_t free = 0;      // before the first component
  int64_t reserved = 0;  // of these: for libraries and graphs
  bool apart = false;    // text encoders leave before the other components come
  bool frees = true;     // components can leave; false: made weights stay on the host
  int ranks = 1;         // that divide values
  int64_t bytes() const { return free - reserved; }
  bool is_gpu() const { return device.starts_with("cuda"); }

  static MemoryRoom of_gpu(int id, int64_t free);
  static MemoryRoom of_cpu(int64_t free);
};

// The components of a room, each told whether its weights are pages of a file.
std::vector<ComponentMemory> components_in(const MemoryRoom& room,
                                           std::vector<ComponentMemory> all);

// Decides where the text encoders among `components` compute, whose bytes are a GPU's there. By
// itself: on the GPU beside all else where that fits, else on the GPU and freed where they alone
// fit, else on the CPU. Encoders on the CPU leave `components`; room.apart tells of freed encoders.
EncoderChoice place_encoders(EncoderPlace wanted, std::vector<ComponentMemory>& components,
                             MemoryRoom& room);

// The component of a name that is among `all`.
ComponentMemory& component(std::vector<ComponentMemory>& all, std::string_view name);

// How a pipeline's components share a device, in the order of their stages.
struct PipelineMemory {
  std::vector<ComponentMemory> components;
  int64_t free = 0;      // free on the device before the first component
  int64_t most = 0;      // used at once
  bool tiled = false;    // the decoder's values are those of a tile
  bool together = true;  // all weights stay; false: each component is freed before the next comes
  bool apart = false;    // with `together`: text encoders leave before the others come
  std::optional<EncoderChoice> encoders;  // none: random numbers are in the prompt's place
  // Options of the program with which all weights would stay.
  std::vector<std::string> options;
};

// Whether a component fits the room alone.
bool fits(const ComponentMemory& component, const MemoryRoom& room);

// Bytes at once if all components stay, but for text encoders apart.
int64_t bytes_together(std::span<const ComponentMemory> components, const MemoryRoom& room);

// A decoding: latents, tiles, and the bytes of values for h x w latents, exact.
struct DecoderSize {
  TileGrid grid;
  int64_t height = 0, width = 0;
  std::function<int64_t(int64_t h, int64_t w)> values_of;
};

// Sets the values of a decoder: for an exact decoding, or for a tile if `tiles` says so or the
// exact ones do not fit. Whether for a tile. A GPU keeps the weights twice, the second time in the
// order of the convolutions.
bool plan_decoder(ComponentMemory& vae, const DecoderSize& size, bool tiles,
                  const MemoryRoom& room);

// Fails with kResource for a component that is too large alone, in one line with the component, its
// bytes and options that would fit. `decoder`: prices tiles where components do not stay.
PipelineMemory plan_memory(std::vector<ComponentMemory> components, const MemoryRoom& room,
                           bool tiled = false, const DecoderSize& decoder = {});

// "transformer 23.8 + 1.0 GB, vae 0.1 + 5.3 GB; ..., 80.0 GB free".
std::string to_string(const PipelineMemory& memory);

}  // namespace braid
