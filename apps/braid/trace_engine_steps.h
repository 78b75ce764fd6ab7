#pragma once

#include <string>

#include "braid/engine/engine.h"
#include "braid/engine/trace/planned_times.h"

namespace braid::app {

// Times of the engine's steps by the prices of a profile, given by its name or file.
PlannedTimes profile_times(const Engine& engine, const std::string& profile);

// Steps of each kind run once: their plans and pages are made. Where ranks divide prompts that are
// longer than a rank's own, such prompts too: a GPU loads a kernel as it runs first.
void warm_up(Engine& engine);

}  // namespace braid::app
