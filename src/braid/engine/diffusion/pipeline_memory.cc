#include "braid/engine/diffusion/pipeline_memory.h"

#include <algorithm>

#include "braid/base/error.h"

namespace braid {
namespace {

constexpr int64_t kForLibraries = int64_t{3} << 28;  // 768 MiB: context, handles, graphs

double gb(int64_t bytes) {
  return static_cast<double>(bytes) * 1e-9;
}

bool fits(const ComponentMemory& c, int64_t free) {
  return c.weights + c.values <= free - kForLibraries;
}

// Text: a user's remedy for a component without room.
std::string remedy(const ComponentMemory& c, int64_t room) {
  if (c.name.starts_with("text_encoder")) return "--text-encoder cpu reads the prompt on the CPU";
  if (c.weights < room) return "a smaller --size needs less for values";
  return "--device cpu computes in the host's memory";
}

}  // namespace

std::vector<std::pair<std::string, int64_t>> weight_bytes_of(
    const std::vector<ComponentMemory>& components) {
  std::vector<std::pair<std::string, int64_t>> out;
  for (const ComponentMemory& c : components) out.emplace_back(c.name, c.weights);
  return out;
}

bool plan_decoder(ComponentMemory& vae, const TileGrid& grid, int64_t height, int64_t width,
                  bool tiles, int64_t free,
                  const std::function<int64_t(int64_t h, int64_t w)>& values_of) {
  vae.values = vae.weights + values_of(height, width);
  if (!grid.divides(height, width) || (!tiles && fits(vae, free))) return false;
  vae.values = vae.weights + values_of(std::min(height, grid.height), std::min(width, grid.width));
  return true;
}

PipelineMemory plan_memory(std::vector<ComponentMemory> components, int64_t free,
                           const std::string& device, bool tiled) {
  const int64_t room = free - kForLibraries;
  int64_t all = 0, largest = 0;  // values of all components stay with the weights
  for (const ComponentMemory& c : components) {
    if (!fits(c, free)) {
      fail(
          ErrorCode::kResource,
          "{} has {:.1f} GB free, and the {} alone needs {:.1f} GB of weights, {:.1f} GB of values "
          "and {:.1f} GB for libraries: {}",
          device, gb(free), c.name, gb(c.weights), gb(c.values), gb(kForLibraries),
          remedy(c, room));
    }
    all += c.weights + c.values;
    largest = std::max(largest, c.weights + c.values);
  }
  const bool together = all <= room;
  return {.components = std::move(components),
          .free = free,
          .most = together ? all : largest,
          .tiled = tiled,
          .together = together};
}

std::string to_string(const PipelineMemory& m) {
  std::string out;
  for (const ComponentMemory& c : m.components) {
    out += fmt::format("{}{} {:.1f} + {:.1f} GB", out.empty() ? "" : ", ", c.name, gb(c.weights),
                       gb(c.values));
  }
  return fmt::format("{} of weights and values; {}: {:.1f} GB at once, {:.1f} GB free", out,
                     m.together ? "all stay" : "one after another", gb(m.most), gb(m.free));
}

}  // namespace braid
