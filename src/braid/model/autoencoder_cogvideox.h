#pragma once

#include <vector>

#include "braid/io/json_object.h"
#include "braid/model/family.h"

namespace braid {

// CogVideoX's video autoencoder (AutoencoderKLCogVideoX); Braid computes its decoder.
struct AutoencoderCogVideoXConfig {
  int64_t latent_channels = 16;
  std::vector<int64_t> channels;  // per level, full size first
  int64_t resnets = 3;            // per level in the encoder; the decoder has one more
  int64_t groups = 32;            // of the norms
  int64_t time_levels = 2;        // decoder levels that double the frames, from the first
  int64_t sample_height = 480, sample_width = 720;  // pixels of a frame in training
  float scaling_factor = 1.15258426f;

  // Pixels along an axis for each latent.
  int64_t scale() const { return int64_t{1} << (channels.size() - 1); }
  int64_t time_scale() const { return int64_t{1} << time_levels; }  // pictures of a latent
  bool operator==(const AutoencoderCogVideoXConfig&) const = default;
};

// Reads an autoencoder's config.json. Fails with kUnsupported, naming the field and its value, on
// what Braid does not compute.
AutoencoderCogVideoXConfig read_autoencoder_cogvideox_config(const JsonObject& config);

struct VideoLatentSize {
  int64_t frames = 0;  // latent frames
  int64_t height = 0;  // in latents
  int64_t width = 0;
  bool operator==(const VideoLatentSize&) const = default;
};

// Latents of a video to pictures. The model decodes two latent frames at a time, at the start of an
// odd number three; norms cover such a chunk, and convolutions see the last frames of the chunk
// before. Values are of `activations`, f32 or bf16. Inputs: latents.0, latents.1, .. [frames of the
// chunk * height * width, latent_channels], already z / scaling_factor. Outputs: the pictures of
// each chunk, [frames * H * W, 3], -1 black to 1 full, not cut. Weights have the names in
// diffusers' files.
Program autoencoder_cogvideox_decode(const AutoencoderCogVideoXConfig& config,
                                     const VideoLatentSize& size, const WeightDtype& dtype_of,
                                     DType activations = DType::f32);

// The latent frames of each chunk.
std::vector<int64_t> cogvideox_chunks(int64_t frames);

// Tensors that files hold and the decoder does not read: the encoder's.
bool autoencoder_cogvideox_ignores(std::string_view tensor);

}  // namespace braid
