#pragma once

#include <string>

#include "braid/schedule/profile.h"

namespace braid::app {

// Measures this machine and keeps the profile, at `path` or in the cache folder; shows progress on
// a terminal. `threads` of each rank, 0: all cores.
Profile calibrate_and_save(int threads, std::string path);

}  // namespace braid::app
