#pragma once

#include <string>
#include <vector>

#include "braid/schedule/schedule.h"

namespace braid {

// The stages of the first attention that is divided over ranks, and what runs on which stream in
// each: "layers.0.attn.ring1: side pull, compute segment_attention". None where there is none.
std::vector<std::string> attention_stages(const Program& program, const Schedule& schedule);

}  // namespace braid
