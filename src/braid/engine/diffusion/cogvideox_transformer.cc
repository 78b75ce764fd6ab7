#include "braid/engine/diffusion/cogvideox_transformer.h"

#include <utility>

#include "braid/engine/diffusion/modulation.h"
#include "braid/engine/diffusion/patch_source.h"
#include "braid/parallel/sequence_parallel.h"

namespace braid {

CogVideoXTransformer::CogVideoXTransformer(const JsonObject& config,
                                           std::shared_ptr<const WeightSource> weights,
                                           const NetworkConfig& network)
    : config_(read_cogvideox_config(config)),
      weights_(std::make_shared<PatchSource>(std::move(weights), "patch_embed.proj.weight")),
      network_("transformer", *weights_, network) {
  const WeightDtype dtype_of = network_.dtype_of();
  const Program programs[] = {cogvideox_text(config_, 1, dtype_of),
                              cogvideox_modulation(config_, 1, dtype_of),
                              cogvideox_step(config_, {.text = 1, .tokens = 1}, dtype_of)};
  network_.check(programs);
}

void CogVideoXTransformer::begin(const CogVideoXInputs& in) {
  const int64_t rows = std::ssize(in.text_states) / config_.text_dim;
  BRAID_CHECK(
      in.texts > 0 && rows * config_.text_dim == std::ssize(in.text_states) && rows % in.texts == 0,
      "{} values of {} texts", in.text_states.size(), in.texts);
  texts_ = in.texts;
  shape_ = {.text = rows / texts_, .tokens = in.grid.tokens()};
  if (batched()) shape_.texts = texts_;
  BoundNetwork& text = network_.plan(fmt::format("text {}", rows), [&] {
    return cogvideox_text(config_, rows, network_.dtype_of());
  });
  text.write("text_states", in.text_states);
  text.run();
  text_.assign(text.output(0).begin(), text.output(0).end());
  positions_ = cogvideox_positions(config_, in.grid);
  written_ = -1;

  const auto n = std::ssize(in.timesteps);
  BoundNetwork& modulation = network_.plan(fmt::format("modulation {}", n), [&] {
    return cogvideox_modulation(config_, n, network_.dtype_of(), network_.activations());
  });
  modulation.write("timestep", std::vector<float>(in.timesteps.begin(), in.timesteps.end()));
  modulation.run();
  modulation_ = joined_modulation(modulation, n, CogVideoXModulation(config_).columns);
}

bool CogVideoXTransformer::batched() const {
  return !mesh() && texts_ * (shape_.text + shape_.tokens) <= kBatchRows;
}

BoundNetwork& CogVideoXTransformer::bound_step() {
  const std::string key =
      fmt::format("step {} x ({} + {})", shape_.texts, shape_.text, shape_.tokens);
  const auto make = [&] {
    return cogvideox_step(config_, shape_, network_.dtype_of(), network_.activations());
  };
  if (!mesh()) return network_.plan(key, make);
  return network_.plan(key, make, [&](const Program& program) {
    return row_parallel(program, *mesh(), row_parts());
  });
}

std::span<const float> CogVideoXTransformer::pass(int64_t step, std::span<const float> latents,
                                                  int64_t i) {
  const auto M = static_cast<size_t>(CogVideoXModulation(config_).columns);
  const auto begin = static_cast<size_t>(step) * M;
  BRAID_CHECK(step >= 0 && begin + M <= modulation_.size(), "step {}", step);
  BoundNetwork& network = bound_step();
  network.write("latents", latents);
  network.write("modulation", std::span(modulation_).subspan(begin, M));
  const bool kept = network_.keeps_inputs() && written_ == network_.plans_made();
  if (!kept) network.write("positions", positions_);
  if (!kept || written_text_ != i) {
    const size_t of_text = text_.size() / static_cast<size_t>(texts_ / shape_.texts);
    network.write("text", std::span(text_).subspan(static_cast<size_t>(i) * of_text, of_text));
  }
  written_ = network_.plans_made();
  written_text_ = i;
  network.run();
  return network.output(0);
}

std::span<const float> CogVideoXTransformer::predict(int64_t step, std::span<const float> latents) {
  if (texts_ == shape_.texts) return pass(step, latents, 0);
  predictions_.clear();
  for (int64_t i = 0; i < texts_; ++i) {
    const auto made = pass(step, latents, i);
    predictions_.insert(predictions_.end(), made.begin(), made.end());
  }
  return predictions_;
}

}  // namespace braid
