#pragma once

#include <string>
#include <string_view>

#include "braid/io/gguf_metadata.h"
#include "braid/io/tokenizer_spec.h"

namespace braid {

// From Hugging Face's tokenizer.json and, if present, tokenizer_config.json (which names BOS and
// EOS, and may redefine added tokens). The spec owns its strings. Fails with kMalformed or
// kUnsupported, naming the file as `name`, the field and the value.
TokenizerSpec tokenizer_from_json(std::string_view tokenizer_json,
                                  std::string_view tokenizer_config_json = {},
                                  std::string_view name = "tokenizer.json");

// A folder of tokenizer files as diffusers keeps them: tokenizer.json, or CLIP's vocab.json and
// merges.txt, or SentencePiece's spiece.model of a unigram model (T5), with tokenizer_config.json
// beside them if present. The spec owns its strings. Fails with kNotFound in a folder without
// tokenizer files, else as tokenizer_from_json does.
TokenizerSpec tokenizer_from_folder(const std::string& path);

// From the text of CLIP's vocab.json and merges.txt: BPE whose words end in "</w>", lower-cased,
// between <|startoftext|> and <|endoftext|>. `name` stands for vocab.json in messages.
TokenizerSpec tokenizer_from_clip(std::string_view vocab_json, std::string_view merges_txt,
                                  std::string_view tokenizer_config_json = {},
                                  std::string_view name = "vocab.json");

// From the bytes of a SentencePiece model of kind unigram, as T5's tokenizer reads it: white space
// separates words, each word begins with "\u2581", </s> ends the text, and 100 sentinels
// <extra_id_99> .. <extra_id_0> follow the vocabulary.
TokenizerSpec tokenizer_from_sentencepiece(std::string_view model,
                                           std::string_view tokenizer_config_json = {},
                                           std::string_view name = "spiece.model");

// From the tokenizer.ggml.* keys of a GGUF file. The spec's strings are views into the mapped file,
// which must outlive every Tokenizer made from the spec. A padding or unknown token out of range
// counts as none, as in llama.cpp: only text without bytes for its characters would need it. Fails
// like GgufMetadata::find, and with kUnsupported on a model or pre-tokenizer that is not known,
// listing those that are; `name` is the file in these messages.
TokenizerSpec tokenizer_from_gguf(const GgufMetadata& metadata, std::string_view name = "GGUF");

}  // namespace braid
