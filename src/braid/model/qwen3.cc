// Qwen3, dense: RMSNorm on each query and key head, and a separate head dimension.
#include "braid/model/decoder.h"

namespace braid {
namespace {

ModelConfig hf_config(const JsonObject& config) {
  ModelConfig c = decoder::hf_config(config, "qwen3");
  c.qk_norm = true;
  return c;
}

}  // namespace

const ModelFamily kQwen3 = {
    .name = "qwen3",
    .gguf_architectures = {"qwen3"},
    .hf_architectures = {"Qwen3ForCausalLM"},
    .gguf_config =
        [](const GgufFile& file) { return decoder::gguf_config(file, {.qk_norm = true}); },
    .hf_config = hf_config,
    .gguf_name = decoder::gguf_name,
    .hf_name = decoder::hf_name,
    .forward = decoder::forward,
};

}  // namespace braid
