#include "braid/engine/diffusion/pipeline_checks.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "braid/engine/diffusion/torch_generator.h"
#include "braid/io/quoted.h"

namespace braid {

void require_range(std::string_view what, int64_t value, int64_t least, int64_t most) {
  if (value >= least && value <= most) return;
  fail(ErrorCode::kInvalidArgument, "{} is {}, wanted {} to {}", what, value, least, most);
}

void require_side(std::string_view what, int64_t pixels, int64_t unit) {
  constexpr int64_t kMostPixels = 16384;
  require_range(what, pixels, unit, kMostPixels);
  if (pixels % unit == 0) return;
  const int64_t below = pixels / unit * unit;
  fail(ErrorCode::kInvalidArgument, "{} is {}, wanted is a multiple of {}: {} or {}", what, pixels,
       unit, below, below + unit);
}

bool all_finite(std::span<const float> values) {
  return std::ranges::all_of(values, [](float x) { return std::isfinite(x); });
}

void require_finite(std::span<const float> prediction, int64_t step, int64_t steps,
                    const std::function<std::string()>& first_block) {
  const auto bad = std::ranges::find_if(prediction, [](float x) { return !std::isfinite(x); });
  if (bad == prediction.end()) return;
  const std::string what =
      fmt::format("value {} of the prediction is {}", bad - prediction.begin(), *bad);
  fail(ErrorCode::kMalformed, "step {} of {}: {}, first {}: the model's numbers are out of range",
       step, steps, what, first_block());
}

int64_t first_block_beyond(int64_t n, const std::function<bool(int64_t block)>& finite_after) {
  int64_t least = 0, most = n;  // the first lies in least .. most
  while (least < most) {
    const int64_t middle = (least + most) / 2;
    if (finite_after(middle)) {
      least = middle + 1;
    } else {
      most = middle;
    }
  }
  return least;
}

int64_t sent_bytes(const BoundNetwork& network, int ranks) {
  double bytes = 0;
  for (int r = 0; r < ranks && ranks > 1; ++r) {
    const Program& program = network.executor(r).program();
    const Work work{.extents = program.capacity};
    for (const Op& op : program.ops) {
      if (op.def->transfers == nullptr) {
        bytes += program.cost(op, work).wire_bytes;
        continue;
      }
      // Also what an attention stores in other ranks' memory.
      for (const Transfer& t : op.def->transfers(op.attrs, program.input_types(op), work)) {
        bytes += t.bytes;
      }
    }
  }
  return std::llround(bytes);
}

bool can_preview(int64_t every, bool together, std::vector<std::string>& remarks) {
  if (every > 0 && !together) {
    remarks.emplace_back("no previews: there is no room for decoder and transformer together");
  }
  return every > 0 && together;
}

bool preview_due(int64_t every, int64_t step, int64_t steps) {
  return step % every == 0 && step < steps;
}

bool decodes_in_tiles(const TileGrid& grid, int64_t scale, int64_t h, int64_t w,
                      const std::optional<PipelineMemory>& memory, bool wanted,
                      std::vector<std::string>& remarks) {
  if (!grid.divides(h, w) || !(memory ? memory->tiled : wanted)) return false;
  remarks.push_back(fmt::format(
      "decoded in tiles of {} x {} pixels that blend, not exactly: tiles may differ in tone",
      grid.width * scale, grid.height * scale));
  return true;
}

DiffusersFolder open_pipeline(const std::string& path, std::string_view wanted) {
  DiffusersFolder folder(path);
  const std::string& found = folder.pipeline();
  if (found == wanted) return folder;
  std::string_view command;
  if (found == "FluxPipeline") command = ": braid image takes this folder";
  if (found == "CogVideoXPipeline") command = ": braid video takes this folder";
  fail(ErrorCode::kUnsupported, "{}: is a pipeline of class {}, wanted is {}{}", path, found,
       wanted, command);
}

void require_transformer(const PipelineParts& parts, std::string_view wanted,
                         std::initializer_list<std::string_view> prefixes) {
  const auto found = parts.transformer.get_or<std::string>("_class_name", std::string(wanted));
  if (found == wanted) return;
  constexpr size_t kNamed = 3;
  std::vector<std::string> others;
  for (const std::string_view tensor : parts.transformer_weights->names()) {
    const auto begins = [&](std::string_view prefix) { return tensor.starts_with(prefix); };
    if (others.size() == kNamed || std::ranges::any_of(prefixes, begins)) continue;
    others.push_back(braid::quoted(tensor));
  }
  fail(ErrorCode::kUnsupported, "{}: the transformer is of class {}, wanted is {}: {}",
       parts.transformer_weights->path(), braid::quoted(found), wanted,
       others.empty()
           ? fmt::format("its tensors have the names of a {}, its config.json is wrong", wanted)
           : fmt::format("that class has no {}", fmt::join(others, ", ")));
}

std::string cut_remark(std::string_view what, int64_t tokens, std::string_view rest) {
  constexpr size_t kMostShown = 80;
  return fmt::format("{} has more than {} tokens: cut off was {}", what, tokens,
                     braid::quoted(rest, kMostShown));
}

void require_agreement(std::string_view what, int64_t has, std::string_view of, int64_t wants) {
  if (has == wants) return;
  fail(ErrorCode::kUnsupported, "the {} makes {} values, the transformer's {} is {}", what, has, of,
       wants);
}

EncodedPrompt random_prompt(uint64_t seed, int64_t values) {
  EncodedPrompt made{.values = std::vector<float>(static_cast<size_t>(values))};
  TorchGenerator(seed).normals(made.values);
  return made;
}

}  // namespace braid
