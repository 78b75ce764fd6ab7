#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "braid/job/launch/launch.h"

namespace braid::job {

// Hands `mine` to all processes of a PMIx job and returns theirs, in order of their numbers; fills
// in the size of the job where the launch did not say it. Fails with kResource where the PMIx
// server does not answer, with kDeadline where a process does not come, with kUnsupported where
// this build has no PMIx.
std::vector<std::string> meet_by_pmix(Launch& launch, const std::string& mine,
                                      std::chrono::milliseconds deadline);

// "4.2.2", empty where this build has none.
std::string pmix_version();

}  // namespace braid::job
