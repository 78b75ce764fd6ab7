#include <nlohmann/json.hpp>

#include "braid/engine/diffusion/flux_pipeline.h"
#include "braid/engine/diffusion/random_source.h"

namespace braid {

PipelineParts random_parts(const std::string& path, const JsonChanges& transformer) {
  const JsonObject file = JsonObject::read(path);
  const auto part = [&](const char* name) {
    if (auto object = file.object(name)) return *object;
    fail(ErrorCode::kNotFound, "{}: there is no object '{}'", path, name);
  };
  nlohmann::json changed = part("transformer").value();
  for (const auto& [field, value] : transformer) changed[field] = value;
  return {.scheduler = part("scheduler"),
          .transformer = JsonObject(path, std::move(changed)),
          .vae = part("vae")};
}

void add_random_weights(PipelineParts& parts, const std::string& path,
                        std::span<const Program> transformer, std::span<const Program> vae) {
  auto transformer_weights = std::make_unique<RandomSource>(path, transformer, 1);
  auto vae_weights = std::make_unique<RandomSource>(path, vae, 2);
  parts.random_transformer = &transformer_weights->weights();
  parts.random_vae = &vae_weights->weights();
  parts.transformer_weights = std::move(transformer_weights);
  parts.vae_weights = std::move(vae_weights);
}

PipelineParts random_flux(const std::string& path, DType dtype, const JsonChanges& changes) {
  PipelineParts parts = random_parts(path, changes);
  const WeightDtype all = all_in(dtype);
  const FluxConfig flux = read_flux_config(parts.transformer);
  const Program transformer[] = {flux_text(flux, 1, all), flux_modulation(flux, 1, all),
                                 flux_step(flux, {.text = 1, .image = 1}, all)};
  const Program vae[] = {autoencoder_kl_decode(read_autoencoder_kl_config(parts.vae),
                                               {.height = 2, .width = 2},
                                               all_in(beside_transformer(dtype)))};
  add_random_weights(parts, path, transformer, vae);
  return parts;
}

}  // namespace braid
