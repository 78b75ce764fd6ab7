#pragma once

#include <span>
#include <string>
#include <vector>

#include "braid/runtime/executor.h"
#include "braid/schedule/expert_rows.h"

namespace braid {

// The rows of a mixture's experts, over all ranks and steps.
struct ExpertLoad {
  std::string layer;          // "layers.3"
  std::vector<int64_t> rows;  // [E]
};

// Makes the counts of expert rows outputs of a rank's Program, behind all others, so that they
// outlive the step.
void keep_expert_rows(Program& program);

// The counts of a rank's last step, in the order of the launches; waits for a device.
std::vector<ExpertRows> read_expert_rows(Executor& executor);

// Adds a step's rows to `loads`. `ranks` are the counts of all ranks, in even `groups` with their
// own tokens; the Program and the Schedule are any rank's. Rows that several ranks count are added
// once.
void add_expert_rows(const Program& program, const Schedule& schedule,
                     std::span<const std::vector<ExpertRows>> ranks, int groups,
                     std::vector<ExpertLoad>& loads);

// Counts as bytes and back, for another process.
std::string pack_expert_rows(std::span<const std::vector<ExpertRows>> ranks);
void unpack_expert_rows(const std::string& bytes, std::span<std::vector<ExpertRows>> ranks);

}  // namespace braid
