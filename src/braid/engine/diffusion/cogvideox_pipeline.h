#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "braid/engine/diffusion/cogvideox_sampler.h"
#include "braid/engine/diffusion/cogvideox_transformer.h"
#include "braid/engine/diffusion/pipeline_parts.h"
#include "braid/engine/diffusion/text_encoders.h"
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
  uint64_t seed = 0;              // video k has seed + k
  int64_t videos = 1;
  bool strict = false;  // a prompt that is too long is an error
  std::function<bool(const PipelineProgress&)> on_progress;
  // Latents as tokens [Lv, token_dim]: noise as step 0, then each step's result.
  std::function<void(int64_t video, int64_t step, std::span<const float> latents)> on_latents;
  // The pictures of each video when finished.
  std::function<void(int64_t video, const std::vector<RgbImage>& frames)> on_video;
};

struct VideoResult {
  bool complete = false;  // false: on_progress ended it
  PipelineTimings timings;
  int64_t tokens = 0;                // of the prompt, without pads
  std::vector<std::string> remarks;  // for users: text was cut
};

// As random_flux(), for configs/cogvideox-2b.json.
PipelineParts random_cogvideox(const std::string& path, DType dtype,
                               const JsonChanges& changes = {});

// CogVideoX from a prompt to pictures. A request's videos are computed in turn.
class CogVideoXPipeline {
 public:
  // Opens all components of a diffusers folder and checks their tensors. With cfg_ranks 2 the two
  // passes of guidance run at the same time, each on as many ranks as `config` says; the device has
  // GPUs for both. Fails with kUnsupported on another pipeline class, and as the components do.
  CogVideoXPipeline(const std::string& folder, const PipelineConfig& config, int cfg_ranks = 1);
  // Without a text encoder: random numbers stand for an encoded prompt.
  CogVideoXPipeline(PipelineParts parts, const PipelineConfig& config, int cfg_ranks = 1);

  const CogVideoXConfig& transformer() const { return passes_[0]->config(); }
  // How ranks divide a step, if any do.
  const std::optional<SequenceMesh>& mesh() const { return passes_[0]->mesh(); }
  int64_t unit() const { return 2 * vae_.scale(); }
  // Pictures of two latent frames, times patch_frames: the decoder works on pairs.
  int64_t frame_unit() const { return 2 * vae_.time_scale() * transformer().patch_frames; }
  // The model's own settings.
  struct Defaults {
    int64_t width = 0, height = 0, frames = 0;
    int64_t fps = 0;
    int64_t steps = 50;
    double guidance = 6;
    int64_t text_tokens = 0;
  };
  Defaults defaults() const;
  // Bytes of each component's weights, as computed with.
  std::vector<std::pair<std::string, int64_t>> weight_bytes() const;

  // Fails with kInvalidArgument on values out of range, naming the nearest legal values, and with
  // kMalformed on latents beyond finite numbers, naming the step.
  VideoResult generate(const VideoRequest& request);

 private:
  CogVideoXPipeline(const DiffusersFolder& folder, const PipelineConfig& config, int cfg_ranks);
  void check(const VideoRequest& request) const;
  // States of the request's texts, the negative prompt first.
  std::vector<std::vector<float>> encode(const VideoRequest& request, VideoResult& result);
  void begin(const std::vector<std::vector<float>>& texts, CogVideoXInputs inputs);
  // The prediction under guidance of this weight.
  std::vector<float> predict(int64_t step, std::span<const float> latents, double guidance);

  CogVideoXSamplerConfig sampler_;
  std::vector<std::unique_ptr<CogVideoXTransformer>> passes_;  // all passes, or one each
  VideoDecoder vae_;
  std::optional<T5Encoder> t5_;  // none: random numbers
};

}  // namespace braid
