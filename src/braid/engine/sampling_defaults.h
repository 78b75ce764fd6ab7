#pragma once

#include "braid/engine/sampling.h"
#include "braid/io/model_file.h"

namespace braid {

// How tokens are chosen where a user does not say: as the model's makers recommend (a folder's
// generation_config.json, a GGUF's general.sampling keys), else greedily, in chats at temperature
// 0.7. A recommendation out of range is left out.
SamplingParams default_sampling(const ModelFile& file, bool chat);

}  // namespace braid
