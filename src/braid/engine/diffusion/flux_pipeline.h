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
#include "braid/engine/diffusion/text_encoders.h"
#include "braid/engine/diffusion/vae_decoder.h"
#include "braid/io/diffusers_folder.h"
#include "braid/io/media/rgb_image.h"

namespace braid {

struct PipelineConfig {
  // Ranks are the transformer's; text encoders and decoder run on one, with the threads of all.
  int threads = 1;  // of each rank
  // How ranks divide the transformer's tokens; none: one rank.
  std::optional<SpMode> sp;
  SpRequest degrees;
  Topology topology;    // of the ranks, with `sp`
  std::string variant;  // of the weight files: "fp16"; empty: the plain ones
};

// How far a job is, for who waits for it. False: it is to end.
struct ImageProgress {
  enum class Stage : uint8_t { encode, prepare, step, decode };
  Stage stage = Stage::encode;
  int64_t image = 0;
  int64_t step = 0;  // steps that are done, of the image
};

struct ImageRequest {
  std::string prompt;
  int64_t width = 0;  // pixels, a multiple of FluxPipeline::unit()
  int64_t height = 0;
  int64_t steps = 0;
  double guidance = 0;
  int64_t text_tokens = 0;  // of T5: shorter prompts are padded, longer ones cut
  uint64_t seed = 0;
  int64_t images = 1;
  // The noise of all images is one draw of one generator; otherwise image k has seed + k.
  bool one_generator = false;
  bool strict = false;  // a prompt that is too long is an error
  std::function<bool(const ImageProgress&)> on_progress;
  // Latents as tokens [Li, in_channels]: the noise as step 0, then what each step makes.
  std::function<void(int64_t image, int64_t step, std::span<const float> latents)> on_latents;
  // Each picture as soon as it is there.
  std::function<void(int64_t image, const RgbImage&)> on_image;
};

struct ImageTimings {
  double encode_ms = 0;
  double prepare_ms = 0;  // modulation, text and plans of the first image
  std::vector<double> step_ms;
  std::vector<double> decode_ms;  // [images]
};

struct ImageResult {
  bool complete = false;  // false: on_progress ended it
  ImageTimings timings;
  int64_t clip_tokens = 0, t5_tokens = 0;  // without pads
  std::vector<std::string> remarks;        // what a user should know: text that was cut
};

// Flux.1 from a prompt to pictures, from a folder of diffusers. Images of one request are computed
// one after another, each as a job of its own would be.
class FluxPipeline {
 public:
  // Opens all components and checks that each tensor is read. Fails with kUnsupported where the
  // pipeline is of another class, and as the components do.
  FluxPipeline(const std::string& folder, const PipelineConfig& config);

  const DiffusersFolder& folder() const { return folder_; }
  const FluxConfig& transformer() const { return transformer_.config(); }
  // How the ranks divide a step, where they do.
  const std::optional<SequenceMesh>& mesh() const { return transformer_.mesh(); }
  // Width and height are multiples of so many pixels: a token's.
  int64_t unit() const { return 2 * vae_.scale(); }
  // What the model was made for.
  struct Defaults {
    int64_t size = 0;  // pixels of both sides
    int64_t steps = 0;
    double guidance = 0;
    int64_t text_tokens = 0;
  };
  Defaults defaults() const;

  // Fails with kInvalidArgument on a request that is out of range, with the nearest sizes that fit,
  // and with kMalformed where latents are no longer finite, naming the step.
  ImageResult generate(const ImageRequest& request);

 private:
  void check(const ImageRequest& request) const;

  DiffusersFolder folder_;
  FlowMatchConfig sampler_;
  std::unique_ptr<WeightSource> transformer_weights_;
  FluxTransformer transformer_;
  ClipEncoder clip_;
  T5Encoder t5_;
  VaeDecoder vae_;
};

}  // namespace braid
