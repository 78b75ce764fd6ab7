#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "braid/engine/diffusion/network.h"
#include "braid/io/json_object.h"
#include "braid/model/flux.h"

namespace braid {

// What a run of denoising steps reads besides the latents.
struct FluxInputs {
  int64_t batch = 1;  // B images of one size
  int64_t token_rows = 0, token_columns = 0;
  std::span<const float> text;    // [B * Lt, text_dim]: T5's states
  std::span<const float> pooled;  // [B, pooled_dim]: CLIP's pooled vector
  std::span<const float> sigmas;  // [steps], of each step
  float guidance = 0;             // read where config().guidance says so
};

// The transformer of a Flux.1 pipeline. begin() computes what does not change over the steps: the
// projected text, the rotary table, and the modulation of all blocks in all steps, so that a step
// reads none of the modulation's weights (a quarter of all).
class FluxTransformer {
 public:
  // Fails as read_flux_config and Network::check do. `weights` outlives it.
  // With a mesh its ranks divide each step's sequence of text and image, as one: each token goes
  // through the linears on one rank. One image at a time then.
  FluxTransformer(const JsonObject& config, const WeightSource& weights,
                  const NetworkConfig& network);

  const FluxConfig& config() const { return config_; }
  const Network& network() const { return network_; }
  const std::optional<SequenceMesh>& mesh() const { return mesh_; }
  // The bound Program of the current step shape.
  BoundNetwork& bound_step();

  void begin(const FluxInputs& inputs);
  // Step i of those that begin() was given: latents [B * Li, in_channels] to the velocity, of the
  // same shape, which is valid until the next call.
  std::span<const float> velocity(int64_t step, std::span<const float> latents);

 private:
  void modulate(const FluxInputs& inputs);

  FluxConfig config_;
  std::optional<SequenceMesh> mesh_;
  Network network_;
  FluxShape shape_;
  std::vector<float> text_;        // [B * Lt, C]
  std::vector<float> modulation_;  // [steps, B, M]
  std::vector<float> rope_;        // [Li, head_dim]
};

}  // namespace braid
