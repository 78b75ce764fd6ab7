#pragma once

#include "braid/schedule/profile.h"

namespace braid::app {

// Measures this machine; shows progress on a terminal. Keeps the profile in the cache folder, or
// says why it could not. `threads` of each rank, 0: all cores.
Profile calibrate_for_later(int threads);

}  // namespace braid::app
