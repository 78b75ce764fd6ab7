#include "braid/engine/thinning.h"

#include <algorithm>

#include "braid/base/error.h"

namespace braid {
namespace {

// Segments of a prompt grow by the square of its parts.
constexpr int kMostThinnedRanks = 64;

}  // namespace

KeyLevels levels_of(const Thinning& thinning, const std::optional<Topology>& ranks) {
  const int parts = thinning.groups.empty() ? kThinnedRanks : thinning.groups.back();
  if (!ranks && parts > kMostThinnedRanks) {
    fail(ErrorCode::kInvalidArgument, "--levels has a group of {} ranks, wanted at most {} in all",
         parts, kMostThinnedRanks);
  }
  KeyLevels levels = ranks ? key_levels(thinning.keep, thinning.groups, *ranks)
                           : key_levels(thinning.keep, thinning.groups, parts);
  levels.importance = thinning.importance;
  if (levels.importance == Importance::probe) levels.scoring = 64;
  levels.drop_queries = thinning.drop_queries;
  // A scoring query is never dropped.
  if (levels.importance == Importance::previous && levels.drop_queries) {
    levels.scoring = levels.recent;
  }
  return levels;
}

bool each_layer_has_a_window(const ModelConfig& config) {
  const std::vector<int64_t>& windows = config.windows;
  return !windows.empty() && std::ranges::all_of(windows, [](int64_t w) { return w > 0; });
}

void require_far_keys(const ModelConfig& config, int64_t context) {
  if (config.latent) {
    fail(ErrorCode::kUnsupported,
         "--keep: latent attention reads a cache of all heads' latents: leave it out");
  }
  if (config.dual && context > config.dual->chunks.plain()) {
    fail(ErrorCode::kUnsupported,
         "--keep: beyond {} tokens the model has dual chunk attention, and the context is {}: pass "
         "--ctx, or leave --keep out",
         config.dual->chunks.plain(), context);
  }
  if (!each_layer_has_a_window(config)) return;
  fail(ErrorCode::kUnsupported, "--keep: each layer has a window, and no far keys: leave it out");
}

}  // namespace braid
