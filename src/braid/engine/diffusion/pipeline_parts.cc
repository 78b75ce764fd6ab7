#include "braid/engine/diffusion/pipeline_parts.h"

namespace braid {

NetworkConfig one_rank(const PipelineConfig& config, const RandomWeights* random) {
  NetworkConfig network{.threads = config.threads * config.ranks(),
                        .device = config.device,
                        .dtype = config.dtype,
                        .random = random};
  if (network.device.cuda) network.device.ids = {config.device.first_gpu()};
  return network;
}

PipelineParts parts_of(const DiffusersFolder& folder, const PipelineConfig& config) {
  return {.scheduler = folder.config("scheduler", "scheduler_config.json"),
          .transformer = folder.config("transformer"),
          .vae = folder.config("vae"),
          .transformer_weights = folder.weights("transformer", config.variant),
          .vae_weights = folder.weights("vae", config.variant)};
}

}  // namespace braid
