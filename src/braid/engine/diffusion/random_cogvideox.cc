#include "braid/engine/diffusion/cogvideox_pipeline.h"

namespace braid {

PipelineParts random_cogvideox(const std::string& path, DType dtype, const JsonChanges& changes) {
  PipelineParts parts = random_parts(path, changes);
  const WeightDtype all = all_in(dtype);
  const CogVideoXConfig c = read_cogvideox_config(parts.transformer);
  const Program transformer[] = {cogvideox_text(c, 1, all), cogvideox_modulation(c, 1, all),
                                 cogvideox_step(c, {.text = 1, .tokens = 1}, all)};
  const Program vae[] = {autoencoder_cogvideox_decode(read_autoencoder_cogvideox_config(parts.vae),
                                                      {.frames = 1, .height = 2, .width = 2},
                                                      all_in(beside_transformer(dtype)))};
  add_random_weights(parts, path, transformer, vae);
  return parts;
}

}  // namespace braid
