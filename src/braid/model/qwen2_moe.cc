// Qwen1.5-MoE and Qwen2-MoE: Qwen2's attention, and beside the experts a shared expert for every
// token, scaled by a gate.
#include "braid/model/decoder.h"

namespace braid {

const ModelFamily kQwen2Moe = {
    .name = "qwen2_moe",
    .gguf_architectures = {"qwen2moe"},
    .hf_architectures = {"Qwen2MoeForCausalLM"},
    .gguf_config =
        [](const GgufFile& file) {
          return decoder::gguf_config(
              file, {.expert_weight = ops::RouteWeight::score, .shared_expert = true});
        },
    .hf_config = [](const JsonObject& config) { return decoder::hf_config(config, "qwen2_moe"); },
    .gguf_name = decoder::gguf_name,
    .hf_name = decoder::hf_name,
    .forward = decoder::forward,
};

}  // namespace braid
