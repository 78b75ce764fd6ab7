#pragma once

#include <string>

#include "braid/fabric/peer/wait_report.h"

namespace braid::fabric {

// "rank 1: waited 10 s on the device for 'tag' from rank 0: expected 5, seen 4", of an expired
// wait.
std::string describe_expired(int rank, const WaitReport& report, const std::string& tag);

}  // namespace braid::fabric
