#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "braid/engine/diffusion/flow_match.h"
#include "braid/engine/diffusion/flux_transformer.h"
#include "braid/engine/diffusion/latents.h"
#include "braid/engine/diffusion/pipeline_memory.h"
#include "braid/engine/diffusion/pipeline_parts.h"
#include "braid/engine/diffusion/prompt_cache.h"
#include "braid/engine/diffusion/vae_decoder.h"
#include "braid/io/diffusers_folder.h"
#include "braid/io/media/rgb_image.h"

namespace braid {

// A pipeline of random weights, with configurations out of a file: an object with "scheduler",
// "transformer" and "vae", each as in diffusers' folders (configs/flux-1-dev.json). A tensor's seed
// is random_seed(1, name) in the transformer, random_seed(2, name) in the decoder.
// `changes` are other values of the transformer's fields.
PipelineParts random_flux(const std::string& path, DType dtype, const JsonChanges& changes = {});

struct ImageRequest {
  std::string prompt;
  int64_t width = 0;  // pixels, a multiple of FluxPipeline::unit()
  int64_t height = 0;
  int64_t steps = 0;
  double guidance = 0;
  int64_t text_tokens = 0;  // T5's: shorter prompts are padded, longer prompts cut
  uint64_t seed = 0;
  int64_t images = 1;
  int64_t first = 0;  // with one_generator: pictures of the draw that come before this request's
  // All noise is a single draw from one generator; otherwise image k has seed + k.
  bool one_generator = false;
  bool strict = false;  // a prompt that is too long is an error
  bool tiles = false;   // the decoder works in tiles that blend, in place of exactly
  std::function<bool(const PipelineProgress&)> on_progress;
  // How components share the memory, before anything is loaded.
  std::function<void(const PipelineMemory&)> on_memory;
  // Latents as tokens [Li, in_channels]: noise as step 0, then each step's result.
  std::function<void(int64_t image, int64_t step, std::span<const float> latents)> on_latents;
  // After every `preview_every` steps but the last (0: never): what the decoder makes of the
  // latents then. Not on a GPU without room for decoder and transformer together.
  int64_t preview_every = 0;
  std::function<void(int64_t image, int64_t step, const RgbImage&)> on_preview;
  // Each picture when finished.
  std::function<void(int64_t image, const RgbImage&)> on_image;
};

struct ImageResult {
  bool complete = false;  // false: on_progress ended it
  PipelineTimings timings;
  int64_t step_bytes = 0, decode_bytes = 0;  // that ranks send each other
  int64_t clip_tokens = 0, t5_tokens = 0;    // without pads
  std::vector<std::string> remarks;          // for users: text was cut
  std::optional<PipelineMemory> memory;
};

// Flux.1 from a prompt to pictures. A request's images are computed in turn, each as in a separate
// job.
class FluxPipeline {
 public:
  // Opens all components of a diffusers folder and checks their tensors. Fails with kUnsupported on
  // another pipeline class, and as the components do.
  FluxPipeline(const std::string& folder, const PipelineConfig& config);
  // Without text encoders random numbers stand for a prompt's embeddings.
  FluxPipeline(PipelineParts parts, const PipelineConfig& config);

  const FluxConfig& transformer() const { return flux_; }
  // How ranks divide a step, if any do.
  const std::optional<SequenceMesh>& mesh() const { return mesh_; }
  const std::string& schedule() const { return schedule_; }           // of the step's ranks
  TextRows text_rows() const { return text_rows_; }                   // likewise
  const std::vector<std::string>& priced() const { return priced_; }  // by `auto`
  // Whether the decoder works in tiles in the present request: on demand, and where a GPU has no
  // room for an exact decoding.
  bool tiled() const { return tiled_; }
  // Width and height are multiples of unit() pixels, a token's side.
  int64_t unit() const { return 2 * vae_config_.scale(); }
  // The settings of a family's own pipeline.
  struct Defaults {
    int64_t size = 0;  // pixels of both sides
    int64_t steps = 0;
    double guidance = 0;
    int64_t text_tokens = 0;
  };
  static Defaults defaults_of(const FluxConfig& transformer, int64_t vae_scale);
  Defaults defaults() const;
  // Bytes of weights on the computing device, by component: "transformer", "vae", "text_encoder",
  // "text_encoder_2".
  std::vector<std::pair<std::string, int64_t>> weight_bytes() const;

  // The components' memory for such a picture, on each GPU or on the host. Fails as plan_memory
  // does.
  PipelineMemory memory(const ImageRequest& request);

  // Fails with kInvalidArgument on values out of range, naming the nearest legal sizes, with
  // kMalformed on predictions beyond finite numbers, naming step and block, and as memory() does,
  // before anything is loaded. Components that do not fit together come one after another.
  ImageResult generate(const ImageRequest& request);

 private:
  FluxPipeline(std::optional<DiffusersFolder> folder, PipelineParts parts, PipelineConfig config);
  void check(const ImageRequest& request) const;
  void encode(const ImageRequest& request, ImageResult& result);
  // A component, made anew if freed. Without room for all, other components are freed first.
  FluxTransformer& steps();
  VaeDecoder& decoder();
  void make_encoders();
  // Decides where encoders compute in the present request, as place_encoders does.
  void place(std::vector<ComponentMemory>& components);
  LatentShape latents_of(const ImageRequest& request) const;
  RgbImage picture(const ImageRequest& request, std::span<const float> latents);

  const PipelineConfig config_;
  const std::optional<DiffusersFolder> folder_;  // none: random numbers
  const PipelineParts parts_;
  const FlowMatchConfig sampler_;
  const FluxConfig flux_;
  const AutoencoderKlConfig vae_config_;
  MemoryRoom room_;  // before this pipeline took any
  EncoderChoice encoders_;
  std::optional<SequenceMesh> mesh_;
  std::string schedule_ = "sequential";
  TextRows text_rows_ = TextRows::split;
  std::vector<std::string> priced_;
  // Without values of transformer and decoder; encoders as where they were made first.
  std::vector<ComponentMemory> weights_;
  bool together_ = true, tiled_ = false;
  std::optional<FluxTransformer> transformer_;
  std::optional<VaeDecoder> vae_;
  std::optional<ClipEncoder> clip_;
  std::optional<T5Encoder> t5_;
  PromptCache prompts_;
  EncodedPrompt pooled_, text_;  // of the request
};

}  // namespace braid
