#include "braid/engine/diffusion/cogvideox_transformer.h"

#include <algorithm>
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

// Of B texts [B, rows, width]: side by side, [rows, B * width].
std::vector<float> side_by_side(std::span<const float> texts, int64_t B, int64_t width) {
  std::vector<float> out(texts.size());
  const int64_t rows = std::ssize(texts) / (B * width);
  for (int64_t i = 0; i < B; ++i) {
    for (int64_t row = 0; row < rows; ++row) {
      std::copy_n(texts.begin() + (((i * rows) + row) * width), width,
                  out.begin() + (((row * B) + i) * width));
    }
  }
  return out;
}

}  // namespace

std::string_view to_string(TextOrder order) {
  switch (order) {
    case TextOrder::apart:
      return "one after another";
    case TextOrder::batch:
      return "as one batch";
    case TextOrder::turns:
      return "by turns";
  }
  return "";
}

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
  shape_ = shape_of(texts_, rows / texts_, in.grid.tokens(), in.order);
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

std::vector<std::vector<std::string>> CogVideoXTransformer::row_parts(TextRows text,
                                                                      const CogVideoXShape& shape) {
  const std::vector<std::string> video = {"latents", "positions"};
  if (text == TextRows::replicated) return {video};
  return {shape.passes ? texts_of(shape) : std::vector<std::string>{"text"}, video};
}

TextOrder CogVideoXTransformer::order() const {
  return shape_.passes ? TextOrder::turns : shape_.texts > 1 ? TextOrder::batch : TextOrder::apart;
}

TextOrder CogVideoXTransformer::usual_order(int64_t rows) const {
  if (mesh() && network_.schedule() == "cfg_passes") return TextOrder::turns;
  return rows <= kMostBatchRows ? TextOrder::batch : TextOrder::apart;
}

CogVideoXShape CogVideoXTransformer::shape_of(int64_t texts, int64_t text, int64_t tokens,
                                              std::optional<TextOrder> wanted) const {
  const TextOrder order = wanted.value_or(usual_order(texts * (text + tokens)));
  CogVideoXShape shape{.text = text, .tokens = tokens};
  if (order != TextOrder::apart) shape.texts = texts;
  shape.passes = texts > 1 && order == TextOrder::turns;
  return shape;
}

Program CogVideoXTransformer::program_of(const CogVideoXConfig& part,
                                         const CogVideoXShape& shape) const {
  return cogvideox_step(part, shape, network_.dtype_of(), network_.activations());
}

LayoutPlan CogVideoXTransformer::layout_of(const Program& program,
                                           const CogVideoXShape& shape) const {
  return row_parallel(program, *mesh(), row_parts(network_.text(), shape));
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

BoundNetwork& CogVideoXTransformer::pass(int64_t step, std::span<const float> latents, int64_t i) {
  BoundNetwork& network = bound_step();
  network.write("latents", latents);
  network.write("modulation", modulation_of(step));
  const bool kept = network_.keeps_inputs() && written_ == network_.plans_made();
  if (!kept) network.write("positions", positions_);
  if (!kept || written_text_ != i) {
    const size_t of_text = text_.size() / static_cast<size_t>(texts_);
    const auto texts = [&](int64_t first, int64_t n) {
      return std::span(text_).subspan(static_cast<size_t>(first) * of_text,
                                      static_cast<size_t>(n) * of_text);
    };
    if (shape_.passes) {
      for (int64_t n = 0; const std::string& name : texts_of(shape_)) {
        network.write(name, texts(n++, 1));
      }
    } else if (shape_.texts > 1) {
      network.write("text", side_by_side(text_, shape_.texts, config_.C()));
    } else {
      network.write("text", texts(i, 1));
    }
  }
  written_ = network_.plans_made();
  written_text_ = i;
  network.run();
  return network;
}

std::span<const float> CogVideoXTransformer::predict(int64_t step, std::span<const float> latents) {
  if (texts_ == 1) return pass(step, latents, 0).output(0);
  predictions_.clear();
  const auto add = [&](std::span<const float> made) {
    predictions_.insert(predictions_.end(), made.begin(), made.end());
  };
  if (shape_.passes) {
    BoundNetwork& network = pass(step, latents, 0);
    for (size_t i = 0; i < network.outputs(); ++i) add(network.output(i));
  } else if (shape_.texts > 1) {
    // Of each token, as wide as a text.
    add(side_by_side(pass(step, latents, 0).output(0), shape_.tokens, config_.token_dim()));
  } else {
    for (int64_t i = 0; i < texts_; ++i) add(pass(step, latents, i).output(0));
  }
  return predictions_;
}

}  // namespace braid
