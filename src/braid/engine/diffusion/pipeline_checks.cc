#include "braid/engine/diffusion/pipeline_checks.h"

#include <algorithm>
#include <cmath>

#include "braid/engine/diffusion/torch_generator.h"

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

void require_finite(std::span<const float> latents, int64_t step, int64_t steps) {
  const auto bad =
      std::ranges::find_if(latents, [](float x) { return !std::isfinite(x); }) - latents.begin();
  if (bad == std::ssize(latents)) return;
  fail(ErrorCode::kMalformed,
       "step {} of {}: value {} of the latents is {}: the model's numbers "
       "are out of range",
       step, steps, bad, latents[static_cast<size_t>(bad)]);
}

int64_t sent_bytes(const BoundNetwork& network, int ranks) {
  double bytes = 0;
  for (int r = 0; r < ranks && ranks > 1; ++r) {
    const Program& program = network.executor(r).program();
    for (const Op& op : program.ops) {
      bytes += program.cost(op, {.extents = program.capacity}).wire_bytes;
    }
  }
  return std::llround(bytes);
}

bool can_preview(int64_t every, bool together, std::vector<std::string>& remarks) {
  if (every > 0 && !together) {
    remarks.emplace_back("no previews: the GPU has no room for decoder and transformer together");
  }
  return every > 0 && together;
}

bool preview_due(int64_t every, int64_t step, int64_t steps) {
  return step % every == 0 && step < steps;
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
