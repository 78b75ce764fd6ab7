#pragma once

#include <string>
#include <vector>

#include "braid/schedule/schedule.h"

namespace braid {

// Parts of the first attention divided over ranks, with each part's ops and streams:
// "layers.0.attn.ring1: side pull, compute segment_attention". Empty without such an attention.
std::vector<std::string> attention_scopes(const Program& program, const Schedule& schedule);

}  // namespace braid
