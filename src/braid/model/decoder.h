#pragma once

#include <span>

#include "braid/model/config_keys.h"
#include "braid/model/family.h"

// Shared by decoder families: a forward pass that differs by fields of ModelConfig, and readers for
// common hyper-parameters.
namespace braid::decoder {

Program forward(const ModelConfig& config, const ForwardShape& shape, const WeightDtype& dtype_of);
// With norms of what attention and MLP give, ahead of each residual sum.
Program forward_with_out_norms(const ModelConfig& config, const ForwardShape& shape,
                               const WeightDtype& dtype_of);

// Differences between the GGUF files of architectures.
struct GgufTraits {
  // llama.cpp's converter interleaves the rotary pairs of Llama, and leaves the others'.
  ops::RopePairing pairing = ops::RopePairing::half;
  bool qk_norm = false;
  bool turns_parts = false;   // RoPE may turn a part of each head, in pairs of neighbours
  bool rope_factors = false;  // a tensor of frequency divisors is allowed
  std::string_view column;    // of gguf_keys(); empty: the architecture
  ops::RouteWeight expert_weight = ops::RouteWeight::normalised;
  bool experts_are_dense_wide = false;  // feed_forward_length is the width of each expert
  bool shared_expert = false;
  bool latent = false;  // latent attention, and a router that the file describes
};

// The `<architecture>.*` keys of GGUF, as in gguf_keys(); biases by present
// tensors.
ModelConfig gguf_config(const GgufFile& file, const GgufTraits& traits);

// config.json in the forms of transformers 4 (rope_scaling) and 5 (rope_parameters), as hf_keys()
// has it for the family.
ModelConfig hf_config(const JsonObject& config, std::string_view family);

// RoPE for the head dimension and context of `c`; may add to `c`'s remarks.
ops::RopeAttrs hf_rope(const JsonObject& config, const TableReader& keys, ModelConfig& c);

// A canonical name, or a layer weight's name behind "layers.N.", and the stem in a file.
struct NamePair {
  std::string_view canonical;
  std::string_view file;
};
// The name in a file whose layers are `layer_prefix` N: ".weight" or ".bias" follows the stem.
std::string name_by(std::span<const NamePair> names, std::string_view layer_prefix,
                    std::string_view canonical);

std::string gguf_name(std::string_view canonical);
std::string hf_name(std::string_view canonical);

// Whether a GGUF file has experts: the architecture "llama" stands for two families.
bool has_experts(const GgufFile& file);

}  // namespace braid::decoder
