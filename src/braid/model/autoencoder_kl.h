#pragma once

#include <vector>

#include "braid/io/json_object.h"
#include "braid/model/family.h"

namespace braid {

// The image autoencoder in Stable Diffusion and Flux (AutoencoderKL); Braid computes its decoder.
struct AutoencoderKlConfig {
  int64_t latent_channels = 4;
  int64_t out_channels = 3;
  std::vector<int64_t> channels;  // per level, full size first
  int64_t resnets = 2;            // per level in the encoder; the decoder has one more
  int64_t groups = 32;            // of the norms
  int64_t sample_size = 32;       // pixels of a side in training: of a tile
  bool post_quant = true;         // a 1x1 convolution before the decoder
  float scaling_factor = 0.18215f;
  float shift_factor = 0;

  // Pixels along an axis for each latent.
  int64_t scale() const { return int64_t{1} << (channels.size() - 1); }
  bool operator==(const AutoencoderKlConfig&) const = default;
};

// Reads an autoencoder's config.json. Fails with kUnsupported, naming the field and its value, on
// what Braid does not compute.
AutoencoderKlConfig read_autoencoder_kl_config(const JsonObject& config);

struct LatentSize {
  int64_t batch = 1;   // B
  int64_t height = 0;  // h, in latents
  int64_t width = 0;   // w
  bool operator==(const LatentSize&) const = default;
};

// Latents to pictures, all values of `activations`, f32 or bf16. Input: latents [B * h * w,
// latent_channels], rows (picture, row, column), already z / scaling_factor + shift_factor. Output:
// pixels [B * H * W, out_channels] in the same order, H = h * scale(), -1 black to 1 full, not cut.
// Weight names are those of diffusers' files. The middle attention is over all h * w latents: exact
// at every size.
Program autoencoder_kl_decode(const AutoencoderKlConfig& config, const LatentSize& size,
                              const WeightDtype& dtype_of, DType activations = DType::f32);

// Tensors that files hold and the decoder does not read: the encoder's.
bool autoencoder_kl_ignores(std::string_view tensor);

}  // namespace braid
