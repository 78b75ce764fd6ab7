#include "braid/engine/diffusion/pipeline_parts.h"

#include <limits>

#include "braid/engine/requests/kv_room.h"

namespace braid {
namespace {

int gpu_of(const PipelineConfig& config, int rank) {
  const std::vector<int>& ids = config.device.ids;
  return ids.empty() ? rank : ids.at(static_cast<size_t>(rank));
}

}  // namespace

NetworkConfig one_rank(const PipelineConfig& config, const RandomWeights* random) {
  NetworkConfig network{.threads = config.threads * config.ranks(),
                        .deadline_ms = config.deadline_ms,
                        .device = config.device,
                        .dtype = config.dtype,
                        .random = random};
  if (network.device.cuda) network.device.ids = {config.device.first_gpu()};
  return network;
}

NetworkConfig over_ranks(const PipelineConfig& config, const std::optional<SequenceMesh>& mesh,
                         const RandomWeights* random, int first) {
  NetworkConfig network = one_rank(config, random);
  if (mesh) {
    network.threads = config.threads;
    network.mesh = mesh;
    network.links = config.links;
  }
  if (!network.device.cuda) return network;
  network.device.ids.clear();
  for (int r = first; r < first + network.ranks(); ++r) {
    network.device.ids.push_back(gpu_of(config, r));
  }
  return network;
}

EncoderPlace first_place(const PipelineConfig& config) {
  const bool on_cpu = !config.device.cuda || config.encoders == EncoderPlace::cpu;
  return on_cpu ? EncoderPlace::cpu : EncoderPlace::gpu;
}

NetworkConfig encoder_of(const PipelineConfig& config, EncoderPlace place) {
  NetworkConfig network = one_rank(config);
  network.dtype = beside_transformer(config.dtype);
  if (place == EncoderPlace::cpu) network.device = {};
  return network;
}

NetworkConfig decoder_of(const PipelineConfig& config, const std::optional<SequenceMesh>& mesh,
                         const RandomWeights* random) {
  NetworkConfig network = over_ranks(config, mesh, random);
  network.dtype = beside_transformer(config.dtype);
  network.schedule = "sequential";  // nothing hides a halo
  return network;
}

StepChoice choice_of(const PipelineConfig& config, const Topology& topology, int64_t heads,
                     const std::function<std::vector<StepForm>(TextRows)>& forms_of, int64_t room) {
  std::vector<StepForm> forms;
  for (const TextRows text : kTextRows) {
    const bool offered = topology.ranks() > 1 || text == TextRows::split;  // one rank has all text
    if (config.text ? *config.text != text : !offered) continue;
    for (StepForm& form : forms_of(text)) forms.push_back(std::move(form));
  }
  std::unique_ptr<KernelCatalog> kernels;
  if (config.device.cuda) kernels = kernels_of_gpu(config.device.first_gpu());
  return choose_step({.sp = {config.sp, config.degrees},
                      .topology = topology,
                      .schedule = config.schedule,
                      .profile = config.profile,
                      .room = room},
                     heads, forms, kernels.get());
}

MemoryRoom room_of(const PipelineConfig& config, bool made) {
  MemoryRoom room;
  if (!config.device.cuda) {
    room = MemoryRoom::of_cpu(config.free_bytes > 0 ? config.free_bytes : available_memory());
    room.frees = !made;
  } else {
    int64_t least = config.free_bytes > 0 ? config.free_bytes : std::numeric_limits<int64_t>::max();
    for (int r = 0; r < config.ranks() && config.free_bytes == 0; ++r) {
      least = std::min(least, gpu_memory(gpu_of(config, r)).free);
    }
    room = MemoryRoom::of_gpu(config.device.first_gpu(), least);
  }
  room.ranks = config.ranks();
  return room;
}

PipelineParts parts_of(const DiffusersFolder& folder, const PipelineConfig& config) {
  return {.scheduler = folder.config("scheduler", "scheduler_config.json"),
          .transformer = folder.config("transformer"),
          .vae = folder.config("vae"),
          .transformer_weights = folder.weights("transformer", config.variant),
          .vae_weights = folder.weights("vae", config.variant)};
}

}  // namespace braid
