#pragma once

#include <filesystem>

#include "braid/engine/parallel_choice.h"
#include "braid/schedule/profile.h"

namespace braid {

// Gives `engine` the profile that its strategy prices with, if it needs one: of this CPU, measured
// now where it is not in the cache folder, or what comes with Braid for the GPU. A strategy of
// the user's own gets the profile only where there is one. Without a profile of the GPU `auto`
// becomes a strategy as it is written, which `notes` hear; `--sp auto` then fails with
// kUnsupported.
void choose_profile(EngineConfig& engine, const Notes& notes);

// Measures this machine with so many threads of each rank (0: all cores): some ten seconds.
Profile measure_profile(int threads, const Notes& notes);
// Where the profile of so many threads is kept. Fails with kResource where the environment names no
// folder.
std::filesystem::path profile_cache_file(int threads);

}  // namespace braid
