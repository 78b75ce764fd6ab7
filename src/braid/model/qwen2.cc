// Qwen2 and Qwen2.5: biases on Q, K and V alone; the sliding window is off unless asked for.
#include "braid/model/decoder.h"

namespace braid {
namespace {

ModelConfig hf_config(const JsonObject& config) {
  ModelConfig c = decoder::hf_config(config, "qwen2");
  c.qkv_bias = true;
  return c;
}

}  // namespace

const ModelFamily kQwen2 = {
    .name = "qwen2",
    .gguf_architectures = {"qwen2"},
    .hf_architectures = {"Qwen2ForCausalLM"},
    .gguf_config = [](const GgufFile& file) { return decoder::gguf_config(file, {}); },
    .hf_config = hf_config,
    .gguf_name = decoder::gguf_name,
    .hf_name = decoder::hf_name,
    .forward = decoder::forward,
};

}  // namespace braid
