#include "braid/engine/diffusion/flux_transformer.h"

#include "braid/engine/diffusion/modulation.h"
#include "braid/parallel/sequence_parallel.h"

namespace braid {
namespace {

std::string key_of(const FluxShape& s) {
  return fmt::format("step {} x ({} + {})", s.batch, s.text, s.image);
}

}  // namespace

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
  const auto make = [&] { return flux_step(config_, shape_, network_.dtype_of(), activations()); };
  if (!mesh()) return network_.plan(key_of(shape_), make);
  if (shape_.batch != 1) {
    fail(ErrorCode::kUnsupported, "{} images at once over {} ranks: one is wanted", shape_.batch,
         mesh()->ranks());
  }
  return network_.plan(key_of(shape_), make, [&](const Program& program) {
    return row_parallel(program, *mesh(), row_parts());
  });
}

std::span<const float> FluxTransformer::velocity(int64_t step, std::span<const float> latents) {
  const auto per_step = static_cast<size_t>(shape_.batch * FluxModulation(config_).columns);
  BRAID_CHECK(step >= 0 && (static_cast<size_t>(step) + 1) * per_step <= modulation_.size(),
              "step {}", step);
  BoundNetwork& network = bound_step();
  network.write("latents", latents);
  if (!network_.keeps_inputs() || written_ != network_.plans_made()) {
    network.write("text", text_);
    network.write("rope", rope_);
    written_ = network_.plans_made();
  }
  network.write("modulation",
                std::span(modulation_).subspan(static_cast<size_t>(step) * per_step, per_step));
  network.run();
  return network.output(0);
}

}  // namespace braid
