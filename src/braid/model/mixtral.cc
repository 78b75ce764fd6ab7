// Mixtral 8x7B and 8x22B: Mistral's attention, experts in every layer. In GGUF the architecture is
// that of a llama, with experts.
#include "braid/model/decoder.h"

namespace braid {
namespace {

constexpr std::string_view kBlock = "block_sparse_moe";

std::string hf_name(std::string_view canonical) {
  const std::string name = decoder::hf_name(canonical);
  if (!canonical.ends_with(".mlp.router")) return name;
  return name.substr(0, name.find("mlp.")) + std::string(kBlock) + ".gate.weight";
}

}  // namespace

const ModelFamily kMixtral = {
    .name = "mixtral",
    .gguf_architectures = {"llama"},
    .hf_architectures = {"MixtralForCausalLM"},
    .gguf_config =
        [](const GgufFile& file) {
          return decoder::gguf_config(file, {.pairing = ops::RopePairing::interleaved,
                                             .rope_factors = true,
                                             .column = "mixtral",
                                             .experts_are_dense_wide = true});
        },
    .hf_config = [](const JsonObject& config) { return decoder::hf_config(config, "mixtral"); },
    .gguf_name = decoder::gguf_name,
    .hf_name = hf_name,
    .forward = decoder::forward,
    .gguf_takes = decoder::has_experts,
    .hf_experts = {.each = "model.layers.{0}.block_sparse_moe.experts.{1}.{2}.weight",
                   .gate = "w1",
                   .up = "w3",
                   .down = "w2"},
};

}  // namespace braid
