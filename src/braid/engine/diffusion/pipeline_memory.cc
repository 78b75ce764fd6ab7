#include "braid/engine/diffusion/pipeline_memory.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "braid/base/error.h"
#include "braid/base/math.h"

namespace braid {
namespace {

// 1.25 GiB beside the context: handles, workspaces, graphs. An H200 showed 0.84 to 1.21 GB.
constexpr int64_t kForLibraries = int64_t{5} << 28;

double gb(int64_t bytes) {
  return static_cast<double>(bytes) * 1e-9;
}

// Text: a user's remedies for a component without room.
std::string remedy(const ComponentMemory& c, const MemoryRoom& room) {
  if (!room.is_gpu()) {
    if (c.values < room.bytes()) return "a GPU with room is named by --device cuda";
    return "a smaller --size needs less for values";
  }
  if (c.encodes_text()) return "--text-encoder cpu reads the prompt on the CPU";
  const int64_t left = room.bytes() - c.weights;
  if (left <= 0) return "--device cpu computes in the host's memory";
  // Ranks divide values, and each has all weights.
  return fmt::format("--sp auto over {} GPUs divides the values, a smaller --size needs less",
                     ceil_div(c.values * room.ranks, left));
}

// `room` has encoders stay.
EncoderChoice best_place(std::span<const ComponentMemory> components, const MemoryRoom& room) {
  const int64_t all = bytes_together(components, room), most = room.bytes();
  int64_t encoders = 0;
  for (const ComponentMemory& c : components) encoders += c.encodes_text() ? c.needs() : 0;
  if (all <= most) {
    return {EncoderPlace::gpu,
            fmt::format("they fit beside all else, {:.1f} of {:.1f} GB", gb(all), gb(most))};
  }
  if (encoders <= most) {
    return {EncoderPlace::load,
            fmt::format("with all else {:.1f} GB do not fit {:.1f} GB, they alone need {:.1f} GB",
                        gb(all), gb(most), gb(encoders))};
  }
  return {EncoderPlace::cpu, fmt::format("they alone need {:.1f} GB, a GPU has {:.1f} GB for them",
                                         gb(encoders), gb(most))};
}

// Options with which all components would stay.
std::vector<std::string> options_for(const std::vector<ComponentMemory>& components,
                                     const MemoryRoom& room, const DecoderSize* exact) {
  std::vector<std::string> options;
  const auto stay = [&](const std::vector<ComponentMemory>& changed, const MemoryRoom& where) {
    return bytes_together(changed, where) <= where.bytes();
  };
  std::vector<ComponentMemory> changed = components;
  if (room.is_gpu() && std::erase_if(changed, [](const auto& c) { return c.encodes_text(); }) > 0) {
    if (stay(changed, room)) options.emplace_back("--text-encoder cpu");
    MemoryRoom apart = room;
    apart.apart = true;
    if (!room.apart && stay(components, apart)) options.emplace_back("--text-encoder load");
  }
  changed = components;
  const auto vae = std::ranges::find(changed, "vae", &ComponentMemory::name);
  if (exact != nullptr && vae != changed.end() && plan_decoder(*vae, *exact, true, room) &&
      stay(changed, room)) {
    options.emplace_back("--vae-tiling");
  }
  changed = components;
  for (ComponentMemory& c : changed) c.values /= 2;
  if (room.is_gpu() && stay(changed, room)) {
    options.push_back(fmt::format("--sp auto over {} GPUs", 2 * room.ranks));
  }
  return options;
}

}  // namespace

std::vector<std::pair<std::string, int64_t>> weight_bytes_of(
    const std::vector<ComponentMemory>& components) {
  std::vector<std::pair<std::string, int64_t>> out;
  for (const ComponentMemory& c : components) out.emplace_back(c.name, c.weights);
  return out;
}

MemoryRoom MemoryRoom::of_gpu(int id, int64_t free) {
  return {.device = fmt::format("cuda:{}", id), .free = free, .reserved = kForLibraries};
}

MemoryRoom MemoryRoom::of_cpu(int64_t free) {
  return {.device = "the CPU", .free = free};
}

std::string_view to_string(EncoderPlace place) {
  constexpr std::array<std::string_view, 4> kNames = {"auto", "gpu", "load", "cpu"};
  return kNames.at(static_cast<size_t>(place));
}

std::vector<ComponentMemory> components_in(const MemoryRoom& room,
                                           std::vector<ComponentMemory> all) {
  for (ComponentMemory& c : all) c.mapped = !room.is_gpu() && room.frees;
  return all;
}

EncoderChoice place_encoders(EncoderPlace wanted, std::vector<ComponentMemory>& components,
                             MemoryRoom& room) {
  room.apart = false;
  if (!room.is_gpu()) return {EncoderPlace::cpu, "all work is on the CPU"};
  EncoderChoice choice{wanted, "as --text-encoder says"};
  if (wanted == EncoderPlace::automatic) choice = best_place(components, room);
  room.apart = choice.place == EncoderPlace::load;
  if (choice.place == EncoderPlace::cpu) std::erase_if(components, &ComponentMemory::encodes_text);
  return choice;
}

ComponentMemory& component(std::vector<ComponentMemory>& all, std::string_view name) {
  const auto at = std::ranges::find(all, name, &ComponentMemory::name);
  BRAID_CHECK(at != all.end(), "no component is called {}", name);
  return *at;
}

bool fits(const ComponentMemory& c, const MemoryRoom& room) {
  return c.needs() <= room.bytes();
}

int64_t bytes_together(std::span<const ComponentMemory> components, const MemoryRoom& room) {
  // Values of all components stay with the weights.
  int64_t encoders = 0, others = 0;
  for (const ComponentMemory& c : components) (c.encodes_text() ? encoders : others) += c.needs();
  return room.apart ? std::max(encoders, others) : encoders + others;
}

bool plan_decoder(ComponentMemory& vae, const DecoderSize& size, bool tiles,
                  const MemoryRoom& room) {
  const auto& [grid, h, w, values_of] = size;
  const int64_t again = room.is_gpu() ? vae.weights : 0;
  vae.values = again + values_of(h, w);
  if (!grid.divides(h, w) || (!tiles && fits(vae, room))) return false;
  vae.values = again + values_of(std::min(h, grid.height), std::min(w, grid.width));
  return true;
}

PipelineMemory plan_memory(std::vector<ComponentMemory> components, const MemoryRoom& room,
                           bool tiled, const DecoderSize& decoder) {
  const std::string libraries =
      room.reserved > 0 ? fmt::format(" and {:.1f} GB for libraries", gb(room.reserved)) : "";
  int64_t largest = 0;
  for (const ComponentMemory& c : components) {
    largest = std::max(largest, c.needs());
    if (fits(c, room)) continue;
    fail(ErrorCode::kResource,
         "{} has {:.1f} GB free, and the {} alone needs {:.1f} GB of weights, "
         "{:.1f} GB of values{}: {}",
         room.device, gb(room.free), c.name, gb(c.weights), gb(c.values), libraries,
         remedy(c, room));
  }
  const int64_t all = bytes_together(components, room);
  PipelineMemory plan{.free = room.free, .most = all, .tiled = tiled, .apart = room.apart};
  if (all > room.bytes()) {
    if (!room.frees) {
      fail(ErrorCode::kResource,
           "{} has {:.1f} GB free, and all components need {:.1f} GB: "
           "a GPU with room is named by --device cuda",
           room.device, gb(room.free), gb(all));
    }
    plan.together = false;
    plan.most = largest;
    plan.options = options_for(components, room, !tiled && decoder.values_of ? &decoder : nullptr);
  }
  plan.components = std::move(components);
  return plan;
}

std::string to_string(const PipelineMemory& m) {
  std::string out, read;
  for (const ComponentMemory& c : m.components) {
    out += fmt::format("{}{} {:.1f} + {:.1f} GB", out.empty() ? "" : ", ", c.name, gb(c.weights),
                       gb(c.values));
    if (!c.mapped || c.weights + c.values <= m.free) continue;
    read += fmt::format("; {}: weights do not fit, and are read from the file each time", c.name);
  }
  const std::string_view how = !m.together ? "one after another"
                               : m.apart   ? "encoders leave first, the others stay"
                                           : "all stay";
  out = fmt::format("{} of weights and values; {}: {:.1f} GB at once, {:.1f} GB free{}", out, how,
                    gb(m.most), gb(m.free), read);
  if (m.encoders) {
    out += fmt::format("; text encoder {}: {}", to_string(m.encoders->place), m.encoders->why);
  }
  if (m.options.empty()) return out;
  return fmt::format("{}; all would stay with {}", out, fmt::join(m.options, ", or "));
}

}  // namespace braid
