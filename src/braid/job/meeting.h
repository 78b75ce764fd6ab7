#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "braid/job/launch/launch.h"

namespace braid::job {

// Hands `mine` to all processes of a PMIx job and returns theirs, by process number; fills in
// the job's size if the launch had none. Fails with kResource without an answer from the PMIx
// server, with kDeadline if a process does not come, with kUnsupported in a build without
// PMIx.
std::vector<std::string> meet_by_pmix(Launch& launch, const std::string& mine,
                                      std::chrono::milliseconds deadline);

// "4.2.2", empty where this build has none.
std::string pmix_version();

}  // namespace braid::job
