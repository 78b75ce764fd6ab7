#pragma once

#include <string>

#include "braid/io/json_object.h"
#include "braid/model/family.h"

namespace braid {

// CLIP's text encoder (CLIPTextModel): a causal transformer with learned positions, whose state at
// the end of the text is the pooled vector.
struct ClipTextConfig {
  int64_t vocab = 49408;  // V
  int64_t width = 768;    // C
  int64_t hidden = 3072;  // of the MLP
  int64_t layers = 12;
  int64_t heads = 12;
  int64_t positions = 77;  // the longest text, in tokens
  float eps = 1e-5f;
  std::string prefix = "text_model.";  // of all weight names; transformers 5 writes files without
  bool operator==(const ClipTextConfig&) const = default;
};

// Reads a text encoder's config.json. Fails with kUnsupported, naming the field and its value, on
// what Braid does not compute.
ClipTextConfig read_clip_text_config(const JsonObject& config);

// B texts with L tokens each, L up to config.positions. Inputs: token_ids i32 [B * L]; positions
// i32 [B * L], 0 .. L-1 for each text; rows i32 [B], each text's end (its first EOS) as an index in
// token_ids. Output: pooled f32 [B, C]. Weight names are transformers'.
Program clip_text(const ClipTextConfig& config, int64_t batch, int64_t length,
                  const WeightDtype& dtype_of);

// Tensors that files may hold and clip_text does not read: a table of position numbers.
bool clip_text_ignores(std::string_view tensor);

}  // namespace braid
