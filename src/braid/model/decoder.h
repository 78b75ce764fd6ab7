#pragma once

#include "braid/model/family.h"

// What the dense decoder families share: one forward pass whose differences are fields of
// ModelConfig, and the readers of the hyper-parameters that they all have.
namespace braid::decoder {

Program forward(const ModelConfig& config, const ForwardShape& shape, const WeightDtype& dtype_of);

// `<architecture>.*` keys of GGUF; biases and QK-norm by the tensors that are there. Rotary pairs
// are `pairing`: llama.cpp's converter interleaves Llama's, and leaves the others'.
ModelConfig gguf_config(const GgufFile& file, ops::RopePairing pairing);

// config.json in the forms of transformers 4 (rope_scaling) and 5 (rope_parameters). A
// sliding_window counts where use_sliding_window says so, or `slides_unless_told` where the file
// does not say.
ModelConfig hf_config(const JsonObject& config, bool slides_unless_told);

std::string gguf_name(std::string_view canonical);
std::string hf_name(std::string_view canonical);

}  // namespace braid::decoder
