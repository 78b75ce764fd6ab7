// Llama 1, 2, 3 and 3.x, SmolLM2, and whatever else calls itself Llama. GGUF files of Mistral do
// too.
#include "braid/model/decoder.h"

namespace braid {

const ModelFamily kLlama = {
    .name = "llama",
    .gguf_architectures = {"llama"},
    .hf_architectures = {"LlamaForCausalLM", "LLaMAForCausalLM"},
    .gguf_config =
        [](const GgufFile& file) {
          return decoder::gguf_config(
              file, {.pairing = ops::RopePairing::interleaved, .rope_factors = true});
        },
    .hf_config = [](const JsonObject& config) { return decoder::hf_config(config, "llama"); },
    .gguf_name = decoder::gguf_name,
    .hf_name = decoder::hf_name,
    .forward = decoder::forward,
};

}  // namespace braid
