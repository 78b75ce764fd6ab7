#pragma once

#include "braid/io/json_object.h"
#include "braid/model/family.h"

namespace braid {

// The transformer of Flux.1 (FluxTransformer2DModel): two-stream blocks, with separate weights for
// text and image, which attend to each other; then blocks over both as a single sequence.
struct FluxConfig {
  int64_t in_channels = 64;  // of a packed latent: channels * 2 * 2
  int64_t blocks = 19;       // with two streams
  int64_t single_blocks = 38;
  int64_t heads = 24;
  int64_t head_dim = 128;
  int64_t text_dim = 4096;   // of T5's states
  int64_t pooled_dim = 768;  // of CLIP's pooled vector
  bool guidance = false;     // guidance-distilled: the guidance scale is an input
  std::vector<int64_t> rope_dims = {16, 56, 56};

  int64_t width() const { return heads * head_dim; }  // C
  bool operator==(const FluxConfig&) const = default;
};

// Reads a transformer's config.json in diffusers' form. Fails with kUnsupported, naming the field
// and its value, on what Braid does not compute.
FluxConfig read_flux_config(const JsonObject& config);

// The modulation of all blocks side by side: begin of each block's columns, and the number of all
// columns (M). Columns of a two-stream block, C each: shift, scale, gate for the attention, then
// for the MLP, for the image; then the same for the text. A single block has shift, scale, gate;
// the last norm has scale, shift.
struct FluxModulation {
  explicit FluxModulation(const FluxConfig& config);
  int64_t image(int64_t block) const { return 12 * C * block; }
  int64_t text(int64_t block) const { return image(block) + (6 * C); }
  int64_t single(int64_t block) const { return singles + (3 * C * block); }

  int64_t C;
  int64_t singles;
  int64_t last;
  int64_t columns;  // M
};

// These Programs' weights have the names in diffusers' files. Inputs and outputs are f32 unless
// said otherwise, values between ops are of `activations`, f32 or bf16; B images share a size and a
// text length.

// The text's form for all steps. Input text_states [B * Lt, text_dim]; output [B * Lt, C].
Program flux_text(const FluxConfig& config, int64_t rows, const WeightDtype& dtype_of);

// The modulation of n (step, image) pairs. Inputs: timestep [n], in 0 .. 1000; guidance [n], 1000
// times the scale, only with config.guidance; pooled [n, pooled_dim]. Outputs, in the order of
// FluxModulation's columns, [n, 6 C], [n, 3 C] or [n, 2 C] each.
Program flux_modulation(const FluxConfig& config, int64_t n, const WeightDtype& dtype_of,
                        DType activations = DType::f32);

struct FluxShape {
  int64_t batch = 1;  // B
  int64_t text = 0;   // Lt, tokens
  int64_t image = 0;  // Li, tokens
  // Text and image rows stay apart in single blocks, too, which costs launches: ranks may then hold
  // whole text beside a part of the image.
  bool apart = false;
  bool operator==(const FluxShape&) const = default;
};

// One denoising step. Inputs: latents [B * Li, in_channels], text [B * Lt, C] (of flux_text, as
// `activations`), modulation [B, M], rope [Li, head_dim] (ops::make_rope_table). Output: velocity
// [B * Li, in_channels].
Program flux_step(const FluxConfig& config, const FluxShape& shape, const WeightDtype& dtype_of,
                  DType activations = DType::f32);

// The rotary table for an image of h x w tokens: [h * w, head_dim].
std::vector<float> flux_rope_table(const FluxConfig& config, int64_t h, int64_t w);

}  // namespace braid
