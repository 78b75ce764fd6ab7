#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "braid/engine/diffusion/cogvideox_sampler.h"
#include "braid/engine/diffusion/cogvideox_transformer.h"
#include "braid/engine/diffusion/pass_choice.h"
#include "braid/engine/diffusion/pipeline_memory.h"
#include "braid/engine/diffusion/pipeline_parts.h"
#include "braid/engine/diffusion/prompt_cache.h"
#include "braid/engine/diffusion/video_decoder.h"

namespace braid {

struct VideoRequest {
  std::string prompt;
  std::string negative;  // text of the second pass
  int64_t width = 0;     // pixels, a multiple of CogVideoXPipeline::unit()
  int64_t height = 0;
  int64_t frames = 0;  // 1, or more by a multiple of frame_unit()
  int64_t steps = 0;
  double guidance = 0;            // above 1: a second pass, with the negative prompt
  bool dynamic_guidance = false;  // grows over the steps
  int64_t text_tokens = 0;        // shorter prompts are padded, longer prompts cut
  uint64_t seed = 0;              // video k has seed + k; with one_generator all have `seed`
  int64_t videos = 1;
  bool one_generator = false;  // draws the noise of all videos at once, as diffusers' batches
  bool strict = false;         // a prompt that is too long is an error
  bool tiles = false;          // as of ImageRequest
  std::function<bool(const PipelineProgress&)> on_progress;
  std::function<void(const PipelineMemory&)> on_memory;  // as of ImageRequest
  // Latents as tokens [Lv, token_dim]: noise as step 0, then each step's result.
  std::function<void(int64_t video, int64_t step, std::span<const float> latents)> on_latents;
  // As of ImageRequest: the first frame.
  int64_t preview_every = 0;
  std::function<void(int64_t video, int64_t step, const RgbImage&)> on_preview;
  // The pictures of each video when finished.
  std::function<void(int64_t video, const std::vector<RgbImage>& frames)> on_video;
};

struct VideoResult {
  bool complete = false;  // false: on_progress ended it
  PipelineTimings timings;
  int64_t step_bytes = 0, decode_bytes = 0;  // that ranks send each other
  int64_t tokens = 0;                        // of the prompt, without pads
  std::string passes;                        // of guidance: how they ran
  std::vector<std::string> remarks;          // for users: text was cut
  std::optional<PipelineMemory> memory;
};

// As random_flux(), for configs/cogvideox-2b.json.
PipelineParts random_cogvideox(const std::string& path, DType dtype,
                               const JsonChanges& changes = {});

// CogVideoX from a prompt to pictures. A request's videos are computed in turn.
class CogVideoXPipeline {
 public:
  // Opens all components of a diffusers folder and checks their tensors. With config.cfg_ranks 2
  // the two passes of guidance run at the same time, each on half of the ranks. Fails with
  // kUnsupported on another pipeline class, with kInvalidArgument on ranks in no equal groups, and
  // as the components do.
  CogVideoXPipeline(const std::string& folder, const PipelineConfig& config);
  // Without a text encoder: random numbers stand for an encoded prompt.
  CogVideoXPipeline(PipelineParts parts, const PipelineConfig& config);

  const CogVideoXConfig& transformer() const { return transformer_; }
  // How ranks divide a pass, if any do.
  const std::optional<SequenceMesh>& mesh() const { return ranks_.mesh; }
  int cfg_ranks() const { return ranks_.cfg_ranks; }
  const std::string& schedule() const { return ranks_.schedule; }           // of a pass' ranks
  TextRows text_rows() const { return ranks_.text; }                        // likewise
  const std::vector<std::string>& priced() const { return ranks_.priced; }  // by `auto`
  bool tiled() const { return tiled_; }                                     // as of FluxPipeline
  int64_t unit() const { return 2 * vae_config_.scale(); }
  // Pictures of two latent frames, times patch_frames: the decoder works on pairs.
  int64_t frame_unit() const { return 2 * vae_config_.time_scale() * transformer_.patch_frames; }
  // The settings of a family's own pipeline.
  struct Defaults {
    int64_t width = 0, height = 0, frames = 0;
    int64_t fps = 0;
    int64_t steps = 50;
    double guidance = 6;
    int64_t text_tokens = 0;
  };
  static Defaults defaults_of(const CogVideoXConfig& transformer, int64_t vae_scale);
  Defaults defaults() const;
  // Bytes of each component's weights, as computed with.
  std::vector<std::pair<std::string, int64_t>> weight_bytes() const;

  // The components' memory for such a video, on each GPU or on the host. Fails as plan_memory does.
  // Without room for both guided passes at once, one follows the other.
  PipelineMemory memory(const VideoRequest& request);

  // Fails with kInvalidArgument on values out of range, naming the nearest legal values, with
  // kMalformed on predictions beyond finite numbers, naming step and block, and as memory() does,
  // before anything is loaded. Components that do not fit together come one after another.
  VideoResult generate(const VideoRequest& request);

 private:
  CogVideoXPipeline(std::optional<DiffusersFolder> folder, PipelineParts parts,
                    PipelineConfig config);
  void check(const VideoRequest& request) const;
  // Latent frames that the decoder reads; the transformer may see more.
  int64_t kept_frames(const VideoRequest& request) const;
  PassChoice choose_ranks() const;
  // Passes run in this order from now on, by the schedule that goes with the order.
  void run_passes(std::optional<TextOrder> order);
  std::string step_schedule() const;
  // A component, made anew if freed. Without room for all, other components are freed first.
  std::vector<std::unique_ptr<CogVideoXTransformer>>& passes();
  VideoDecoder& decoder();
  void make_encoder();
  // Decides where the encoder computes in the present request, as place_encoders does.
  void place(std::vector<ComponentMemory>& components);
  // States of the request's texts, the negative prompt first.
  std::vector<std::vector<float>> encode(const VideoRequest& request, VideoResult& result);
  void begin(const std::vector<std::vector<float>>& texts, CogVideoXInputs inputs);
  // Of the first `frames` latent frames.
  std::vector<RgbImage> pictures(const VideoRequest& request, std::span<const float> latents,
                                 int64_t frames);
  // The prediction under guidance of this weight.
  std::vector<float> predict(int64_t step, int64_t steps, std::span<const float> latents,
                             double guidance);

  const PipelineConfig config_;
  const std::optional<DiffusersFolder> folder_;  // none: random numbers
  const PipelineParts parts_;
  const CogVideoXSamplerConfig sampler_;
  const CogVideoXConfig transformer_;
  const AutoencoderCogVideoXConfig vae_config_;
  MemoryRoom room_;  // before this pipeline took any
  EncoderChoice encoder_;
  const PassChoice ranks_;
  std::optional<TextOrder> order_;  // of passes in the present request
  // Without values of transformer and decoder; the encoder as where it was made first.
  std::vector<ComponentMemory> weights_;
  bool together_ = true, tiled_ = false;
  std::vector<std::unique_ptr<CogVideoXTransformer>> passes_;  // all passes, or one each
  std::optional<VideoDecoder> vae_;
  std::optional<T5Encoder> t5_;
  PromptCache prompts_;
};

}  // namespace braid
