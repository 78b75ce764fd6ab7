#pragma once

#include "braid/io/json_object.h"
#include "braid/model/family.h"

namespace braid {

// The encoder of T5 1.1 (T5EncoderModel): RMS norms, a gated MLP, no biases, and scores that are
// not scaled but have a bias by relative position, the same in all layers.
struct T5EncoderConfig {
  int64_t vocab = 32128;   // V
  int64_t width = 4096;    // C
  int64_t hidden = 10240;  // of the MLP
  int64_t layers = 24;
  int64_t heads = 64;
  int64_t head_dim = 64;
  int64_t buckets = 32;  // of the position bias
  int64_t max_distance = 128;
  float eps = 1e-6f;
  bool operator==(const T5EncoderConfig&) const = default;
};

// Reads a text encoder's config.json. Fails with kUnsupported, naming the field and its value, on
// what Braid does not compute (MLPs without a gate, say).
T5EncoderConfig read_t5_encoder_config(const JsonObject& config);

struct T5EncoderShape {
  int64_t batch = 1;     // B
  int64_t length = 0;    // L, tokens of each text
  bool padding = false;  // a text's padding is not attended to: key_len is an input
  bool operator==(const T5EncoderShape&) const = default;
};

// Inputs: token_ids i32 [B * L]; with `padding` key_len i32 [B], the tokens of each text. Output:
// states f32 [B * L, C]. Weight names are those of transformers' files.
Program t5_encoder(const T5EncoderConfig& config, const T5EncoderShape& shape,
                   const WeightDtype& dtype_of);

// Tensors that files may hold and t5_encoder does not read: a second embedding, and the decoder of
// a whole T5.
bool t5_encoder_ignores(std::string_view tensor);

}  // namespace braid
