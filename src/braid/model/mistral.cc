// Mistral: Llama with a sliding window and a separate head dimension. GGUF files call Mistral a
// Llama, and llama.cpp does not read the window.
#include "braid/model/decoder.h"

namespace braid {

const ModelFamily kMistral = {
    .name = "mistral",
    .gguf_architectures = {},  // llama.cpp's converter writes Mistral as "llama"
    .hf_architectures = {"MistralForCausalLM"},
    .gguf_config = nullptr,
    .hf_config = [](const JsonObject& config) { return decoder::hf_config(config, "mistral"); },
    .gguf_name = decoder::gguf_name,
    .hf_name = decoder::hf_name,
    .forward = decoder::forward,
};

}  // namespace braid
