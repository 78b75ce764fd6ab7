#pragma once

#include "braid/base/error.h"
#include "braid/job/launch/launch.h"

namespace braid::job {

// Null where the variable is absent or empty.
const std::string* find(const Environment& env, std::string_view name);

// The variable's value; fails with kInvalidArgument unless it is a number from `least` to `most`.
int number(const Environment& env, std::string_view name, int least, int most);

// Rank and size from two variables: nothing without both, kInvalidArgument with a single variable
// or with a rank not below the size.
std::optional<Launch> rank_and_size(const Environment& env, LaunchSource source,
                                    std::string_view rank, std::string_view size);

// Adds MASTER_ADDR and MASTER_PORT if set.
void add_meeting_place(const Environment& env, Launch& launch);

}  // namespace braid::job
