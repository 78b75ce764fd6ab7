#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "braid/engine/diffusion/network.h"
#include "braid/io/json_object.h"
#include "braid/model/flux.h"

namespace braid {

// Inputs of denoising steps beside the latents.
struct FluxInputs {
  int64_t batch = 1;  // B images with equal sizes
  int64_t token_rows = 0, token_columns = 0;
  std::span<const float> text;    // [B * Lt, text_dim]: T5's states
  std::span<const float> pooled;  // [B, pooled_dim]: CLIP's pooled vector
  std::span<const float> sigmas;  // [steps]
  float guidance = 0;             // ignored without config().guidance
};

// A few of the blocks: costs ranks in proportion to the whole, needs the same values but for
// modulation, and is planned sooner.
FluxConfig few_blocks(FluxConfig config);

// A Flux.1 pipeline's transformer. begin() computes everything constant over the steps: projected
// text, rotary table, and every block's modulation for all steps. A step then reads no modulation
// weights (a quarter in all).
class FluxTransformer {
 public:
  // Fails as read_flux_config and Network::check do. `weights` outlives it.
  // With a mesh, ranks divide each step's sequence [text, image]: each token goes through the
  // linears on a single rank, unless text is replicated. Then begin() takes one image at a time.
  FluxTransformer(const JsonObject& config, const WeightSource& weights,
                  const NetworkConfig& network);

  // A step's inputs with rows that ranks divide, as in row_parallel.
  static std::vector<std::vector<std::string>> row_parts(TextRows text = TextRows::split) {
    if (text == TextRows::replicated) return {{"latents", "rope"}};
    return {{"text"}, {"latents", "rope"}};
  }

  const FluxConfig& config() const { return config_; }
  const Network& network() const { return network_; }
  const std::optional<SequenceMesh>& mesh() const { return network_.mesh(); }
  // Of the steps from now on, as Network's.
  void divide_by(const SequenceMesh& mesh, const std::string& schedule,
                 TextRows text = TextRows::split) {
    network_.divide_by(mesh, schedule, text);
  }
  // The step's bound Program for the current shape.
  BoundNetwork& bound_step();

  // Bytes of values that a device needs for such a step, as of Network.
  int64_t value_bytes(const FluxShape& shape) const;

  void begin(const FluxInputs& inputs);
  // Step i after begin(): latents [B * Li, in_channels] to a velocity in the same shape, valid
  // until the next call.
  std::span<const float> velocity(int64_t step, std::span<const float> latents);
  // Where numbers of step i leave the finite ones, for messages: "behind block 3 of 57". Plans and
  // runs a part of the blocks several times.
  std::string first_block_beyond_finite(int64_t step, std::span<const float> latents);

 private:
  // A step of a part of the blocks, the first ones.
  BoundNetwork& bound_part(const FluxConfig& part);
  Program program_of(const FluxConfig& part, FluxShape shape) const;
  std::span<const float> modulation_of(int64_t step) const;
  void modulate(const FluxInputs& inputs);
  DType activations() const { return network_.activations(); }

  FluxConfig config_;
  Network network_;
  FluxShape shape_;
  std::vector<float> text_;        // [B * Lt, C]
  std::vector<float> modulation_;  // [steps, B, M]
  std::vector<float> rope_;        // [Li, head_dim]
  // The count of plans when text and rope were last written to the step's inputs; -1: not yet.
  int64_t written_ = -1;
};

}  // namespace braid
