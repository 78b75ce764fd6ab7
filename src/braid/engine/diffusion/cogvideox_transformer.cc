#include "braid/engine/diffusion/cogvideox_transformer.h"

#include <utility>

#include "braid/engine/diffusion/modulation.h"
#include "braid/engine/diffusion/patch_source.h"
#include "braid/engine/diffusion/pipeline_checks.h"
#include "braid/parallel/sequence_parallel.h"

namespace braid {
namespace {

// The texts' inputs of a step with passes.
std::vector<std::string> texts_of(const CogVideoXShape& shape) {
  std::vector<std::string> names;
  for (int64_t i = 0; i < shape.texts; ++i) names.push_back(fmt::format("text.{}", i));
  return names;
}

}  // namespace

CogVideoXConfig one_block(CogVideoXConfig config) {
  config.blocks = 1;
  return config;
}

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
  shape_ = shape_of(texts_, rows / texts_, in.grid.tokens(), in.by_one);
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

bool CogVideoXTransformer::by_turns(int64_t texts) const {
  return mesh() && texts > 1 && network_.schedule() == "cfg_passes";
}

CogVideoXShape CogVideoXTransformer::shape_of(int64_t texts, int64_t text, int64_t tokens,
                                              bool by_one) const {
  const bool batched = !mesh() && !by_one && texts * (text + tokens) <= kBatchRows;
  CogVideoXShape shape{.text = text, .tokens = tokens};
  if (batched || by_turns(texts)) shape.texts = texts;
  shape.passes = by_turns(texts);
  return shape;
}

Program CogVideoXTransformer::program_of(const CogVideoXConfig& part,
                                         const CogVideoXShape& shape) const {
  return cogvideox_step(part, shape, network_.dtype_of(), network_.activations());
}

LayoutPlan CogVideoXTransformer::layout_of(const Program& program,
                                           const CogVideoXShape& shape) const {
  const TextRows text = network_.text();
  std::vector<std::vector<std::string>> parts = row_parts(text);
  if (shape.passes && text == TextRows::split) parts[0] = texts_of(shape);
  return row_parallel(program, *mesh(), parts);
}

int64_t CogVideoXTransformer::value_bytes(const CogVideoXShape& shape) const {
  const Program program = program_of(one_block(config_), shape);
  return mesh() ? network_.value_bytes(program, layout_of(program, shape))
                : network_.value_bytes(program);
}

BoundNetwork& CogVideoXTransformer::bound_step() {
  return bound_part(config_, shape_);
}

BoundNetwork& CogVideoXTransformer::bound_part(const CogVideoXConfig& part,
                                               const CogVideoXShape& shape) {
  const std::string key =
      fmt::format("step {} {} ({} + {}), {} blocks", shape.texts, shape.passes ? "passes" : "x",
                  shape.text, shape.tokens, part.blocks);
  const auto make = [&] { return program_of(part, shape); };
  if (!mesh()) return network_.plan(key, make);
  return network_.plan(key, make, [&](const Program& p) { return layout_of(p, shape); });
}

std::span<const float> CogVideoXTransformer::modulation_of(int64_t step) const {
  const auto M = static_cast<size_t>(CogVideoXModulation(config_).columns);
  const auto begin = static_cast<size_t>(step) * M;
  BRAID_CHECK(step >= 0 && begin + M <= modulation_.size(), "step {}", step);
  return std::span(modulation_).subspan(begin, M);
}

std::string CogVideoXTransformer::first_block_beyond_finite(int64_t step,
                                                            std::span<const float> latents,
                                                            int64_t i) {
  const CogVideoXModulation all(config_);
  const std::span<const float> modulation = modulation_of(step);
  const size_t of_text = text_.size() / static_cast<size_t>(texts_);
  const auto finite_after = [&](int64_t blocks) {
    CogVideoXConfig part = config_;
    part.blocks = blocks;
    std::vector<float> columns(modulation.begin(), modulation.begin() + all.attention(blocks));
    columns.insert(columns.end(), modulation.begin() + all.last, modulation.end());
    BoundNetwork& network = bound_part(part, {.text = shape_.text, .tokens = shape_.tokens});
    network.write("latents", latents);
    network.write("text", std::span(text_).subspan(static_cast<size_t>(i) * of_text, of_text));
    network.write("positions", positions_);
    network.write("modulation", columns);
    network.run();
    return all_finite(network.output(0));
  };
  const int64_t first = first_block_beyond(config_.blocks, finite_after);
  return first == 0 ? "before the blocks"
                    : fmt::format("behind block {} of {}", first, config_.blocks);
}

void CogVideoXTransformer::require_finite(int64_t step, int64_t steps,
                                          std::span<const float> latents,
                                          std::span<const float> predictions) {
  for (int64_t i = 0; i < texts_; ++i) {
    const auto n = latents.size();
    braid::require_finite(predictions.subspan(static_cast<size_t>(i) * n, n), step + 1, steps,
                          [&] { return first_block_beyond_finite(step, latents, i); });
  }
}

std::span<const float> CogVideoXTransformer::pass(int64_t step, std::span<const float> latents,
                                                  int64_t i) {
  BoundNetwork& network = bound_step();
  network.write("latents", latents);
  network.write("modulation", modulation_of(step));
  const bool kept = network_.keeps_inputs() && written_ == network_.plans_made();
  if (!kept) network.write("positions", positions_);
  if (!kept || written_text_ != i) {
    const std::vector<std::string> names =
        shape_.passes ? texts_of(shape_) : std::vector<std::string>{"text"};
    const size_t of_text = text_.size() / static_cast<size_t>(texts_ / shape_.texts) / names.size();
    for (size_t n = 0; n < names.size(); ++n) {
      const size_t begin = (static_cast<size_t>(i) + n) * of_text;
      network.write(names[n], std::span(text_).subspan(begin, of_text));
    }
  }
  written_ = network_.plans_made();
  written_text_ = i;
  network.run();
  return network.output(0);
}

std::span<const float> CogVideoXTransformer::predict(int64_t step, std::span<const float> latents) {
  if (texts_ == shape_.texts && !shape_.passes) return pass(step, latents, 0);
  predictions_.clear();
  if (shape_.passes) {
    pass(step, latents, 0);
    BoundNetwork& network = bound_step();
    for (size_t i = 0; i < network.outputs(); ++i) {
      const auto made = network.output(i);
      predictions_.insert(predictions_.end(), made.begin(), made.end());
    }
    return predictions_;
  }
  for (int64_t i = 0; i < texts_; ++i) {
    const auto made = pass(step, latents, i);
    predictions_.insert(predictions_.end(), made.begin(), made.end());
  }
  return predictions_;
}

}  // namespace braid
