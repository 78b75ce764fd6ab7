#pragma once

#include "braid/io/json_object.h"
#include "braid/model/family.h"

namespace braid {

// The transformer of CogVideoX (CogVideoXTransformer3DModel) 1.0 and 1.5: text and video share all
// weights but the modulation, and attend as a single sequence.
struct CogVideoXConfig {
  int64_t channels = 16;  // of a latent
  int64_t blocks = 30;
  int64_t heads = 30;
  int64_t head_dim = 64;
  int64_t text_dim = 4096;  // of T5's states
  int64_t time_dim = 512;   // of the timestep's embedding
  int64_t text_tokens = 226;
  int64_t patch_frames = 1;  // latent frames in a token: 2 in version 1.5
  bool rotary = false;       // positions turn queries and keys; false: are added to patches
  bool slice = false;        // rotary positions count tokens (1.5), in place of a fitted grid
  bool qkv_bias = true;
  bool patch_bias = true;  // always in version 1.5, whatever its file says
  float eps = 1e-5f;       // for norms, but for those over queries and keys
  // The size of training, in latents; frames in pictures.
  int64_t height = 60;
  int64_t width = 90;
  int64_t frames = 49;
  double spatial_scale = 1.875;  // of added positions
  double temporal_scale = 1;

  int64_t C() const { return heads * head_dim; }
  // Values per token: a patch of patch_frames x 2 x 2 latents, the channel slowest.
  int64_t token_dim() const { return channels * patch_frames * 4; }
  bool operator==(const CogVideoXConfig&) const = default;
};

// Reads a transformer's config.json in diffusers' form. Fails with kUnsupported, naming the field
// and its value, on options beyond Braid.
CogVideoXConfig read_cogvideox_config(const JsonObject& config);

// The modulation of all blocks side by side: C columns each of shift, scale, gate for the video,
// then for the text, before the attention; the same before the MLP. The last norm has shift, scale.
struct CogVideoXModulation {
  explicit CogVideoXModulation(const CogVideoXConfig& config)
      : C(config.C()), last(12 * C * config.blocks), columns(last + (2 * C)) {}
  int64_t attention(int64_t block) const { return 12 * C * block; }
  int64_t mlp(int64_t block) const { return attention(block) + (6 * C); }

  int64_t C;
  int64_t last;
  int64_t columns;  // M
};

// A video in tokens.
struct VideoGrid {
  int64_t frames = 0;
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t tokens() const { return frames * rows * columns; }
  bool operator==(const VideoGrid&) const = default;
};

// These Programs' weights have the names in diffusers' files; "patch_embed.proj.weight" is [C,
// token_dim]. Values between ops are of `activations`, f32 or bf16; other inputs and outputs f32.

// Projected texts, constant over steps. Input text_states [rows, text_dim]; output [rows, C].
Program cogvideox_text(const CogVideoXConfig& config, int64_t rows, const WeightDtype& dtype_of);

// The modulation of n steps. Input timestep [n]. Outputs, in the order of CogVideoXModulation's
// columns, [n, 6 C] or [n, 2 C] each.
Program cogvideox_modulation(const CogVideoXConfig& config, int64_t n, const WeightDtype& dtype_of,
                             DType activations = DType::f32);

struct CogVideoXShape {
  int64_t texts = 1;   // B: the video is computed with each text
  int64_t text = 0;    // Lt, tokens
  int64_t tokens = 0;  // Lv, of the video
  // Texts are no batch: each has a pass of its own through all blocks, in scope "pass.0" and so on,
  // its input "text.0", and an output [Lv, token_dim]. A strategy may run passes by turns.
  bool passes = false;
  bool operator==(const CogVideoXShape&) const = default;
};

// One denoising step. Inputs: latents [Lv, token_dim], text [Lt, B * C] (of cogvideox_text, texts
// side by side, as `activations`), modulation [1, M], and positions: with config.rotary f32 [Lv,
// head_dim], else [Lv, C] as `activations`. Output: the prediction for each text, side by side [Lv,
// B * token_dim].
Program cogvideox_step(const CogVideoXConfig& config, const CogVideoXShape& shape,
                       const WeightDtype& dtype_of, DType activations = DType::f32);

// The step's input `positions`, for a video with this size.
std::vector<float> cogvideox_positions(const CogVideoXConfig& config, const VideoGrid& grid);

}  // namespace braid
