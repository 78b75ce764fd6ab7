// Qwen2 and Qwen2.5: biases on Q, K and V alone; the sliding window is off unless asked for.
#include "braid/model/decoder.h"

namespace braid {
namespace {

// Qwen2.5-1M: attention as in training up to chunk_size, beyond it by chunks.
void read_chunks(const JsonObject& config, ModelConfig& c) {
  const auto size = config.get<int64_t>("chunk_size"), local = config.get<int64_t>("local_size");
  const auto wide = [](int64_t n) { return n < 0 || n > INT32_MAX; };
  DualChunkConfig dual{
      .chunks = {.chunk = wide(size) || wide(local) ? 0 : size - local,
                 .reach = size,
                 .original = config.get_or<int64_t>("original_max_position_embeddings", 0),
                 .rope = c.rope},
      .context = c.context};
  dual.chunks.rope.attention_factor = 1;
  const int64_t plain = dual.chunks.plain();
  if (plain >= c.context) return;
  c.remarks.push_back(
      fmt::format("config.json: sequences of more than {} tokens take dual chunk attention: "
                  "without --ctx the context is {}, not {}",
                  plain, plain, c.context));
  c.dual = dual;
  check_config(c, "config.json");
  c.context = plain;
}

ModelConfig hf_config(const JsonObject& config) {
  ModelConfig c = decoder::hf_config(config, "qwen2");
  c.qkv_bias = true;
  if (const auto chunks = config.object("dual_chunk_attention_config")) read_chunks(*chunks, c);
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
