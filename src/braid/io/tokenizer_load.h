#pragma once

#include <string_view>

#include "braid/io/gguf_metadata.h"
#include "braid/io/tokenizer_spec.h"

namespace braid {

// From the text of Hugging Face's tokenizer.json and, where there is one, tokenizer_config.json
// (which names BOS, EOS and the like, and may redefine added tokens). The spec owns its strings.
// Fails with kMalformed or kUnsupported, naming the file as `name`, the field and the value.
TokenizerSpec tokenizer_from_json(std::string_view tokenizer_json,
                                  std::string_view tokenizer_config_json = {},
                                  std::string_view name = "tokenizer.json");

// From the tokenizer.ggml.* keys of a GGUF file. The spec's strings are views into the mapped file,
// which must outlive every Tokenizer made from the spec. A padding or unknown token out of range
// counts as none, as in llama.cpp: only text without bytes for its characters would need it. Fails
// like GgufMetadata::find, and with kUnsupported on a model or pre-tokenizer that is not known,
// listing those that are; `name` is the file in these messages.
TokenizerSpec tokenizer_from_gguf(const GgufMetadata& metadata, std::string_view name = "GGUF");

}  // namespace braid
