#include "braid/engine/diffusion/flux_transformer.h"

#include <algorithm>

#include "braid/engine/diffusion/modulation.h"
#include "braid/engine/diffusion/pipeline_checks.h"
#include "braid/parallel/sequence_parallel.h"

namespace braid {
namespace {

std::string key_of(const FluxShape& s) {
  return fmt::format("step {} x ({} + {})", s.batch, s.text, s.image);
}

}  // namespace

FluxConfig few_blocks(FluxConfig config) {
  config.blocks = std::min<int64_t>(config.blocks, 1);
  config.single_blocks = std::min<int64_t>(config.single_blocks, 2);
  return config;
}

FluxTransformer::FluxTransformer(const JsonObject& config, const WeightSource& weights,
                                 const NetworkConfig& network)
    : config_(read_flux_config(config)), network_("transformer", weights, network) {
  const WeightDtype dtype_of = network_.dtype_of();
  const Program programs[] = {flux_text(config_, 1, dtype_of),
                              flux_modulation(config_, 1, dtype_of),
                              flux_step(config_, {.text = 1, .image = 1}, dtype_of)};
  network_.check(programs);
}

void FluxTransformer::begin(const FluxInputs& in) {
  const int64_t rows = std::ssize(in.text) / config_.text_dim;
  BRAID_CHECK(in.batch > 0 && rows * config_.text_dim == std::ssize(in.text) &&
                  rows % in.batch == 0 && std::ssize(in.pooled) == in.batch * config_.pooled_dim,
              "{} text values, {} pooled ones of {} images", in.text.size(), in.pooled.size(),
              in.batch);
  shape_ = {.batch = in.batch, .text = rows / in.batch, .image = in.token_rows * in.token_columns};
  BoundNetwork& text = network_.plan(fmt::format("text {}", rows),
                                     [&] { return flux_text(config_, rows, network_.dtype_of()); });
  text.write("text_states", in.text);
  text.run();
  text_.assign(text.output(0).begin(), text.output(0).end());
  rope_ = flux_rope_table(config_, in.token_rows, in.token_columns);
  written_ = -1;
  modulate(in);
}

void FluxTransformer::modulate(const FluxInputs& in) {
  const auto steps = std::ssize(in.sigmas);
  const int64_t n = steps * in.batch;
  // The pipeline makes a timestep from sigma, and the model makes its own from the timestep,
  // rounded each time.
  std::vector<float> timestep, pooled;
  for (float sigma : in.sigmas) {
    const float t = sigma * 1000;
    timestep.insert(timestep.end(), static_cast<size_t>(in.batch), t / 1000 * 1000);
    pooled.insert(pooled.end(), in.pooled.begin(), in.pooled.end());
  }
  BoundNetwork& network = network_.plan(fmt::format("modulation {}", n), [&] {
    return flux_modulation(config_, n, network_.dtype_of(), activations());
  });
  network.write("timestep", timestep);
  if (config_.guidance) {
    network.write("guidance", std::vector<float>(static_cast<size_t>(n), in.guidance * 1000));
  }
  network.write("pooled", pooled);
  network.run();
  modulation_ = joined_modulation(network, n, FluxModulation(config_).columns);
}

BoundNetwork& FluxTransformer::bound_step() {
  return bound_part(config_);
}

Program FluxTransformer::program_of(const FluxConfig& part, FluxShape shape) const {
  shape.apart = network_.text() == TextRows::replicated;
  return flux_step(part, shape, network_.dtype_of(), activations());
}

int64_t FluxTransformer::value_bytes(const FluxShape& shape) const {
  const Program program = program_of(few_blocks(config_), shape);
  if (!mesh()) return network_.value_bytes(program);
  return network_.value_bytes(program, row_parallel(program, *mesh(), row_parts(network_.text())));
}

BoundNetwork& FluxTransformer::bound_part(const FluxConfig& part) {
  const auto make = [&] { return program_of(part, shape_); };
  const std::string key =
      fmt::format("{}, {} + {} blocks", key_of(shape_), part.blocks, part.single_blocks);
  if (!mesh()) return network_.plan(key, make);
  if (shape_.batch != 1) {
    fail(ErrorCode::kUnsupported, "{} images at once over {} ranks: one is wanted", shape_.batch,
         mesh()->ranks());
  }
  return network_.plan(key, make, [&](const Program& program) {
    return row_parallel(program, *mesh(), row_parts(network_.text()));
  });
}

std::span<const float> FluxTransformer::modulation_of(int64_t step) const {
  const auto per_step = static_cast<size_t>(shape_.batch * FluxModulation(config_).columns);
  BRAID_CHECK(step >= 0 && (static_cast<size_t>(step) + 1) * per_step <= modulation_.size(),
              "step {}", step);
  return std::span(modulation_).subspan(static_cast<size_t>(step) * per_step, per_step);
}

std::string FluxTransformer::first_block_beyond_finite(int64_t step,
                                                       std::span<const float> latents) {
  const FluxModulation all(config_);
  const std::span<const float> modulation = modulation_of(step);
  const auto finite_after = [&](int64_t blocks) {
    FluxConfig part = config_;
    part.blocks = std::min(blocks, config_.blocks);
    part.single_blocks = blocks - part.blocks;
    std::vector<float> columns;
    for (int64_t b = 0; b < shape_.batch; ++b) {
      const auto take = [&, row = modulation.begin() + (b * all.columns)](int64_t begin,
                                                                          int64_t n) {
        columns.insert(columns.end(), row + begin, row + begin + n);
      };
      take(0, all.image(part.blocks));
      take(all.singles, all.single(part.single_blocks) - all.singles);
      take(all.last, all.columns - all.last);
    }
    BoundNetwork& network = bound_part(part);
    network.write("latents", latents);
    network.write("text", text_);
    network.write("rope", rope_);
    network.write("modulation", columns);
    network.run();
    return all_finite(network.output(0));
  };
  const int64_t blocks = config_.blocks + config_.single_blocks;
  const int64_t first = first_block_beyond(blocks, finite_after);
  return first == 0 ? "before the blocks" : fmt::format("behind block {} of {}", first, blocks);
}

std::span<const float> FluxTransformer::velocity(int64_t step, std::span<const float> latents) {
  BoundNetwork& network = bound_step();
  network.write("latents", latents);
  if (!network_.keeps_inputs() || written_ != network_.plans_made()) {
    network.write("text", text_);
    network.write("rope", rope_);
    written_ = network_.plans_made();
  }
  network.write("modulation", modulation_of(step));
  network.run();
  return network.output(0);
}

}  // namespace braid
