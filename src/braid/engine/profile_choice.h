#pragma once

#include <filesystem>

#include "braid/engine/parallel_choice.h"
#include "braid/schedule/profile.h"

namespace braid {

// Gives `engine` the profile for its strategy's prices, if needed: this CPU's, measured now unless
// in the cache folder, or Braid's profile for the GPU. A user's strategy gets the profile only if
// one exists, and so do GPUs that divide tokens, to price whether queries or keys move. Without a
// profile of the GPU `auto` becomes a fixed strategy, and `notes` hear of the change; `--sp auto`
// then fails with kUnsupported.
void choose_profile(EngineConfig& engine, const Notes& notes);

// The known profile for `engine`'s device, if any: nothing is measured.
std::optional<Profile> known_profile(const EngineConfig& engine);

// Measures this machine with `threads` threads per rank (0: all cores): some ten seconds.
Profile measure_profile(int threads, const Notes& notes);
// File for the profile of `threads` threads. Fails with kResource if the environment names no
// folder.
std::filesystem::path profile_cache_file(int threads);

}  // namespace braid
