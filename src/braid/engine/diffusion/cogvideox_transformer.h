#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "braid/engine/diffusion/network.h"
#include "braid/io/json_object.h"
#include "braid/model/cogvideox.h"

namespace braid {

// How the texts of a step, as guidance's two, run on the same ranks.
enum class TextOrder : uint8_t {
  apart,  // one after another
  batch,  // as one: weights are read once, and few rows are multiplied together
  turns,  // by the schedule "cfg_passes", each during the other's transfers
};
std::string_view to_string(TextOrder order);

// A batch of up to 35,552 rows was faster than its texts apart, by 19% with few rows and 2% with
// many; with 334,912 rows it was 8 to 12% slower (docs/log/components.md). Between nothing is
// known.
constexpr int64_t kMostBatchRows = 131072;

// The other inputs of denoising steps, beside latents.
struct CogVideoXInputs {
  VideoGrid grid;
  int64_t texts = 1;                   // B: with guidance by two passes 2
  std::span<const float> text_states;  // [B * Lt, text_dim], of T5
  std::span<const int64_t> timesteps;  // [steps]
  std::optional<TextOrder> order;      // none: CogVideoXTransformer::usual_order
};

// A block, which costs ranks and needs values as all blocks do, and is planned sooner.
CogVideoXConfig one_block(CogVideoXConfig config);

// A CogVideoX pipeline's transformer. begin() computes constants over steps: projected text,
// positions, and every block's modulation for all steps.
class CogVideoXTransformer {
 public:
  // Fails as read_cogvideox_config and Network::check do. `weights` outlives it. With a mesh, ranks
  // divide each step's sequence [text, video].
  CogVideoXTransformer(const JsonObject& config, std::shared_ptr<const WeightSource> weights,
                       const NetworkConfig& network);

  // A step's inputs with rows that ranks divide, as in row_parallel.
  static std::vector<std::vector<std::string>> row_parts(TextRows text = TextRows::split,
                                                         const CogVideoXShape& shape = {});

  const CogVideoXConfig& config() const { return config_; }
  const Network& network() const { return network_; }
  const std::optional<SequenceMesh>& mesh() const { return network_.mesh(); }
  // Of the steps from now on, as Network's.
  void divide_by(const SequenceMesh& mesh, const std::string& schedule,
                 TextRows text = TextRows::split) {
    network_.divide_by(mesh, schedule, text);
  }
  // The order of texts with so many rows together, where nobody chose another: turns by the
  // schedule "cfg_passes", else a batch, up to kMostBatchRows.
  TextOrder usual_order(int64_t rows) const;
  // Of the present texts; without several: apart.
  TextOrder order() const;
  // The shape of a step's Program for so many texts, with `text` rows each.
  CogVideoXShape shape_of(int64_t texts, int64_t text, int64_t tokens,
                          std::optional<TextOrder> order) const;
  // Bytes of values that a device needs for such a Program, as of Network.
  int64_t value_bytes(const CogVideoXShape& shape) const;
  // The step's bound Program for the current shape.
  BoundNetwork& bound_step();

  void begin(const CogVideoXInputs& inputs);
  // Step i after begin(): latents [Lv, token_dim] to a prediction for each text, [B * Lv,
  // token_dim], valid until the next call.
  std::span<const float> predict(int64_t step, std::span<const float> latents);
  // Fails with kMalformed on such a prediction of step i of `steps` beyond finite numbers, naming
  // step and block.
  void require_finite(int64_t step, int64_t steps, std::span<const float> latents,
                      std::span<const float> predictions);

 private:
  Program program_of(const CogVideoXConfig& part, const CogVideoXShape& shape) const;
  LayoutPlan layout_of(const Program& program, const CogVideoXShape& shape) const;
  // As of FluxTransformer, with text `i`.
  std::string first_block_beyond_finite(int64_t step, std::span<const float> latents, int64_t i);
  BoundNetwork& bound_part(const CogVideoXConfig& part, const CogVideoXShape& shape);
  std::span<const float> modulation_of(int64_t step) const;
  // Runs the Program with text `i` of several, or with all.
  BoundNetwork& pass(int64_t step, std::span<const float> latents, int64_t i);

  CogVideoXConfig config_;
  std::shared_ptr<const WeightSource> weights_;
  Network network_;
  int64_t texts_ = 1;
  CogVideoXShape shape_;           // a Program's shape: all texts, or one
  std::vector<float> text_;        // [B * Lt, C]
  std::vector<float> modulation_;  // [steps, M]
  std::vector<float> positions_;
  std::vector<float> predictions_;  // [texts], in order
  // The count of plans at the last write of positions, and of the text in use; -1: not yet.
  int64_t written_ = -1, written_text_ = -1;
};

}  // namespace braid
