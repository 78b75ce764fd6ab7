#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "braid/engine/diffusion/network.h"
#include "braid/engine/diffusion/pipeline_memory.h"
#include "braid/io/diffusers_folder.h"

// Shared by pipelines of all families.
namespace braid {

struct PipelineConfig {
  // Ranks divide steps and decoding; text encoders use rank 0 with all threads.
  int threads = 1;  // of each rank
  // How ranks divide tokens; none: a single rank.
  std::optional<SpMode> sp;
  bool choose_sp = false;  // the mode is the fastest in simulation; `sp` does not count
  SpRequest degrees;
  std::optional<TextRows> text = TextRows::split;  // over ranks; none: as is fastest in simulation
  Topology topology;                               // of all ranks
  // Groups of ranks: 2 compute a pass of guidance each, at the same time. 0: with `choose_sp`, as
  // is fastest in simulation for two passes.
  int cfg_ranks = 1;
  int passes = 2;  // of guidance that choices are to be fastest for
  std::string schedule = "sequence_parallel";
  std::optional<Profile> profile;  // prices modes, and strategies where `schedule` is auto
  fabric::LinkModel links;         // between ranks
  int64_t deadline_ms = 60000;     // of a wait for another rank
  // The picture or video that choices are to be fastest for; 0: the model's own size and text.
  int64_t width = 0, height = 0, frames = 0, text_tokens = 0;
  std::string variant;  // weight files, "fp16" say; empty: plain files
  DeviceSpec device;
  DType dtype = DType::bf16;  // of a GPU's weights and activations: bf16, f16 or f32
  EncoderPlace encoders = EncoderPlace::automatic;  // where text encoders compute
  int64_t free_bytes = 0;  // of each device for the pipeline; 0: as much as is free

  // The type of a step's values, and of noise, which diffusers draws in the model's type.
  DType values() const { return device.cuda ? dtype : DType::f32; }
  int ranks() const { return sp || choose_sp ? topology.ranks() : std::max(1, cfg_ranks); }
};

// The type of decoders and text encoders on a GPU: the transformer's, but bf16 beside f16.
inline DType beside_transformer(DType dtype) {
  return dtype == DType::f16 ? DType::bf16 : dtype;
}

// All weights in one type.
inline WeightDtype all_in(DType dtype) {
  return [dtype](std::string_view) { return dtype; };
}

// Options for work on a single rank, with the threads of all ranks.
NetworkConfig one_rank(const PipelineConfig& config, const RandomWeights* random = nullptr);
// Options for a rank each on the config's GPUs from `first` on, divided as `mesh` says; without a
// mesh one rank with the threads of `ranks`.
NetworkConfig over_ranks(const PipelineConfig& config, const std::optional<SequenceMesh>& mesh,
                         const RandomWeights* random, int first = 0);
// Where text encoders are made first, until a request's memory is planned.
EncoderPlace first_place(const PipelineConfig& config);
// Options for text encoders at a place.
NetworkConfig encoder_of(const PipelineConfig& config, EncoderPlace place);
// Options for a decoder, whose ranks divide rows as over_ranks says.
NetworkConfig decoder_of(const PipelineConfig& config, const std::optional<SequenceMesh>& mesh,
                         const RandomWeights* random);

// The division of a step over `topology`, as choose_step does for the config and `room`, among
// `forms` of the step for each TextRows that the config allows.
StepChoice choice_of(const PipelineConfig& config, const Topology& topology, int64_t heads,
                     const std::function<std::vector<StepForm>(TextRows)>& forms, int64_t room = 0);

// Free memory of the config's fullest GPU, or of the host. `made`: a CPU's weights are made, not
// mapped, and stay.
MemoryRoom room_of(const PipelineConfig& config, bool made);

// A pipeline's parts, but for text encoders: the components' configurations and weights.
struct PipelineParts {
  JsonObject scheduler, transformer, vae;
  std::shared_ptr<const WeightSource> transformer_weights, vae_weights;
  // For random weights of both: GPUs make these weights themselves.
  const RandomWeights *random_transformer = nullptr, *random_vae = nullptr;
};

// Fields of a configuration with their new values.
using JsonChanges = std::vector<std::pair<std::string, int64_t>>;

// The configurations of a file without weights, then random weights for Programs.
PipelineParts random_parts(const std::string& path, const JsonChanges& transformer = {});
void add_random_weights(PipelineParts& parts, const std::string& path,
                        std::span<const Program> transformer, std::span<const Program> vae);
// The components of a diffusers folder, but for text encoders.
PipelineParts parts_of(const DiffusersFolder& folder, const PipelineConfig& config);

// How far a job is.
struct PipelineProgress {
  enum class Stage : uint8_t { encode, prepare, step, decode };
  Stage stage = Stage::encode;
  int64_t item = 0;  // picture or video
  int64_t step = 0;  // finished steps
};

struct PipelineTimings {
  double encoders_ms = 0;  // text encoders' files and weights, where a prompt is new
  double encode_ms = 0;    // from the prompt to its states
  double prepare_ms = 0;   // modulation, text and plans of the first item
  std::vector<double> step_ms;
  std::vector<double> decode_ms;  // [items]
};

}  // namespace braid
