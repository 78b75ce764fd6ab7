// Qwen2 and Qwen2.5: biases on Q, K and V alone; the sliding window is off unless asked for.
#include "braid/model/decoder.h"

namespace braid {
namespace {

ModelConfig hf_config(const JsonObject& config) {
  ModelConfig c = decoder::hf_config(config, "qwen2");
  c.qkv_bias = true;
  // Qwen2.5-1M's attention beyond this length is not built.
  if (const auto chunks = config.object("dual_chunk_attention_config")) {
    const auto length = chunks->find<int64_t>("original_max_position_embeddings")
                            .value_or(chunks->get_or<int64_t>("chunk_size", c.context));
    if (length < c.context) {
      c.remarks.push_back(
          fmt::format("config.json: sequences of more than {} tokens take dual chunk attention, "
                      "which is not supported: the context is {}, not {}",
                      length, length, c.context));
      c.context = length;
      check_config(c, "config.json");
    }
  }
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
