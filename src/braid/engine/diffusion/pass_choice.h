#pragma once

#include <optional>
#include <string>
#include <vector>

#include "braid/engine/diffusion/cogvideox_transformer.h"
#include "braid/engine/diffusion/pipeline_parts.h"

namespace braid {

// How ranks compute the passes of guidance.
struct PassChoice {
  int cfg_ranks = 1;                 // groups of ranks, each with its own passes
  std::optional<SequenceMesh> mesh;  // of a group's ranks, if several
  std::string schedule = "sequential";
  TextRows text = TextRows::split;
  std::optional<TextOrder> order;  // of a group's passes; none: by the transformer's rule
  // Of `auto`: simulated ms of a block, all passes, a line for each candidate.
  std::vector<std::string> priced;
};

// By the config, or for `auto` the least simulated time of all modes, groups and orders, with room
// for a rank's values beside the transformer's weights. A pass has `text` and `tokens` rows. Fails
// as choose_step and cfg_group do.
PassChoice choose_passes(const PipelineConfig& config, const CogVideoXConfig& transformer,
                         int64_t text, int64_t tokens, const WeightSource& weights,
                         const MemoryRoom& room);

}  // namespace braid
