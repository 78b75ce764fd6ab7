// Qwen3-MoE: Qwen3's attention, experts without a shared one.
#include "braid/model/decoder.h"

namespace braid {
namespace {

ModelConfig hf_config(const JsonObject& config) {
  ModelConfig c = decoder::hf_config(config, "qwen3_moe");
  c.qk_norm = true;
  return c;
}

}  // namespace

const ModelFamily kQwen3Moe = {
    .name = "qwen3_moe",
    .gguf_architectures = {"qwen3moe"},
    .hf_architectures = {"Qwen3MoeForCausalLM"},
    .gguf_config =
        [](const GgufFile& file) { return decoder::gguf_config(file, {.qk_norm = true}); },
    .hf_config = hf_config,
    .gguf_name = decoder::gguf_name,
    .hf_name = decoder::hf_name,
    .forward = decoder::forward,
};

}  // namespace braid
