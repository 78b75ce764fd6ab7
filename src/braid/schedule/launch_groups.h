#pragma once

#include "braid/schedule/schedule.h"

namespace braid {

// Sets Schedule::groups to what the catalog joins; needs Launch::beside. Only steps of one
// micro-batch have groups. `ranks_alike`: as of LaunchRun. Cost: linear in launches, beside the
// catalog's join() for each launch outside a group.
void find_groups(const Program& program, const KernelCatalog& catalog, bool ranks_alike,
                 Schedule& schedule);

}  // namespace braid
