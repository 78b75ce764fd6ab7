#include "braid/engine/diffusion/cogvideox_pipeline.h"

#include <cmath>
#include <future>
#include <utility>

#include "braid/engine/diffusion/latents.h"
#include "braid/engine/diffusion/pipeline_checks.h"
#include "braid/engine/diffusion/random_source.h"
#include "braid/engine/diffusion/torch_generator.h"

namespace braid {
namespace {

using Stage = PipelineProgress::Stage;

constexpr int64_t kMostFrames = 1 << 16;
constexpr int64_t kMostVideos = 100000;
constexpr int64_t kMostTextTokens = 512;

DiffusersFolder open_cogvideox(const std::string& path) {
  DiffusersFolder folder(path);
  if (folder.pipeline() != "CogVideoXPipeline") {
    fail(ErrorCode::kUnsupported, "{}: is a pipeline of class {}, wanted is CogVideoXPipeline",
         path, folder.pipeline());
  }
  folder.require_class("transformer", "CogVideoXTransformer3DModel");
  folder.require_class("text_encoder", "T5EncoderModel");
  folder.require_class("vae", "AutoencoderKLCogVideoX");
  return folder;
}

NetworkConfig on_cpu(NetworkConfig network) {
  network.device = {};
  network.random = nullptr;
  return network;
}

LatentShape latent_shape(const VideoRequest& request, const VideoDecoder& vae, int64_t patch) {
  const int64_t frames = ((request.frames - 1) / vae.time_scale()) + 1;
  return {.channels = vae.channels(),
          .height = request.height / vae.scale(),
          .width = request.width / vae.scale(),
          .frames = ceil_div(frames, patch) * patch,
          .patch_frames = patch};
}

// The device of ranks `first` .. first + n - 1.
DeviceSpec device_part(const DeviceSpec& device, int first, int n) {
  if (!device.cuda) return device;
  DeviceSpec part{.cuda = true, .ids = {}};
  for (int r = first; r < first + n; ++r) {
    part.ids.push_back(device.ids.empty() ? r : device.ids.at(static_cast<size_t>(r)));
  }
  return part;
}

}  // namespace

PipelineParts random_cogvideox(const std::string& path, DType dtype, const JsonChanges& changes) {
  PipelineParts parts = random_parts(path, changes);
  const WeightDtype all = [dtype](std::string_view) { return dtype; };
  const CogVideoXConfig c = read_cogvideox_config(parts.transformer);
  const Program transformer[] = {cogvideox_text(c, 1, all), cogvideox_modulation(c, 1, all),
                                 cogvideox_step(c, {.text = 1, .tokens = 1}, all)};
  const Program vae[] = {autoencoder_cogvideox_decode(read_autoencoder_cogvideox_config(parts.vae),
                                                      {.frames = 1, .height = 2, .width = 2}, all)};
  add_random_weights(parts, path, transformer, vae);
  return parts;
}

CogVideoXPipeline::CogVideoXPipeline(PipelineParts parts, const PipelineConfig& config,
                                     int cfg_ranks)
    : sampler_(read_cogvideox_sampler_config(parts.scheduler)),
      vae_(parts.vae, std::move(parts.vae_weights), one_rank(config, parts.random_vae)) {
  require_range("the number of cfg ranks", cfg_ranks, 1, 2);
  require_dtype_over_ranks(config);
  const std::shared_ptr<const WeightSource> weights = parts.transformer_weights;
  NetworkConfig network = one_rank(config, parts.random_transformer);
  network.threads = config.threads;
  network.links = config.links;
  network.schedule = config.schedule;
  if (config.sp && config.topology.ranks() > 1) {
    network.mesh = sequence_mesh(*config.sp, config.topology,
                                 read_cogvideox_config(parts.transformer).heads, config.degrees);
  }
  for (int i = 0; i < cfg_ranks; ++i) {
    network.device = device_part(config.device, i * network.ranks(), network.ranks());
    passes_.push_back(std::make_unique<CogVideoXTransformer>(parts.transformer, weights, network));
  }
  require_agreement("vae's latents", vae_.channels(), "in_channels", transformer().channels);
}

CogVideoXPipeline::CogVideoXPipeline(const DiffusersFolder& folder, const PipelineConfig& config,
                                     int cfg_ranks)
    : CogVideoXPipeline(parts_of(folder, config), config, cfg_ranks) {
  const NetworkConfig encoder = one_rank(config);
  t5_.emplace(folder, config.encode_on_cpu ? on_cpu(encoder) : encoder, config.variant);
  require_agreement("text_encoder", t5_->width(), "text_embed_dim", transformer().text_dim);
}

CogVideoXPipeline::CogVideoXPipeline(const std::string& folder, const PipelineConfig& config,
                                     int cfg_ranks)
    : CogVideoXPipeline(open_cogvideox(folder), config, cfg_ranks) {}

CogVideoXPipeline::Defaults CogVideoXPipeline::defaults() const {
  const CogVideoXConfig& c = transformer();
  return {.width = c.width * vae_.scale(),
          .height = c.height * vae_.scale(),
          .frames = c.frames,
          .fps = c.slice ? 16 : 8,
          .text_tokens = c.text_tokens};
}

std::vector<std::pair<std::string, int64_t>> CogVideoXPipeline::weight_bytes() const {
  std::vector<std::pair<std::string, int64_t>> out = {
      {"transformer", passes_[0]->network().weight_bytes()},
      {"vae", vae_.network().weight_bytes()}};
  if (t5_) out.emplace_back("text_encoder", t5_->network().weight_bytes());
  return out;
}

void CogVideoXPipeline::check(const VideoRequest& r) const {
  require_side("the width", r.width, unit());
  require_side("the height", r.height, unit());
  const CogVideoXConfig& c = transformer();
  if (c.slice) {  // positions beyond training's do not exist
    require_range("the width", r.width, unit(), c.width * vae_.scale());
    require_range("the height", r.height, unit(), c.height * vae_.scale());
  }
  require_range("the number of frames", r.frames, 1, kMostFrames);
  if (const int64_t over = (r.frames - 1) % frame_unit(); over != 0) {
    fail(ErrorCode::kInvalidArgument, "the number of frames is {}, wanted is {} k + 1: {} or {}",
         r.frames, frame_unit(), r.frames - over, r.frames - over + frame_unit());
  }
  require_range("the number of steps", r.steps, 1, sampler_.train_timesteps);
  require_range("the number of videos", r.videos, 1, kMostVideos);
  require_range("the number of text tokens", r.text_tokens, 1, kMostTextTokens);
  if (!std::isfinite(r.guidance)) {
    fail(ErrorCode::kInvalidArgument, "guidance is {}, wanted is a number", r.guidance);
  }
  if (passes_.size() == 2 && r.guidance <= 1) {
    fail(ErrorCode::kInvalidArgument,
         "2 cfg ranks compute two passes, guidance {} takes one: wanted is guidance over 1, or 1 "
         "cfg rank",
         r.guidance);
  }
}

std::vector<std::vector<float>> CogVideoXPipeline::encode(const VideoRequest& request,
                                                          VideoResult& result) {
  std::vector<std::vector<float>> texts;
  const auto add = [&](const std::string& prompt, std::string_view what) {
    EncodedPrompt made =
        t5_ ? t5_->encode(prompt, request.text_tokens)
            : random_prompt(texts.size() + 1, request.text_tokens * transformer().text_dim);
    if (!made.cut.empty()) {
      result.remarks.push_back(fmt::format("the {} has more than {} tokens: this was cut off: {}",
                                           what, request.text_tokens, made.cut));
      if (request.strict) fail(ErrorCode::kInvalidArgument, "{}", result.remarks.back());
    }
    result.tokens = made.tokens;
    texts.push_back(std::move(made.values));
  };
  if (request.guidance > 1) add(request.negative, "negative prompt");
  add(request.prompt, "prompt");
  if (!t5_) result.remarks.emplace_back("random numbers are in the place of the prompt");
  return texts;
}

void CogVideoXPipeline::begin(const std::vector<std::vector<float>>& texts,
                              CogVideoXInputs inputs) {
  if (passes_.size() == 2) {
    for (size_t i = 0; i < 2; ++i) {
      inputs.text_states = texts[i];
      passes_[i]->begin(inputs);
    }
    return;
  }
  std::vector<float> all;
  for (const auto& text : texts) all.insert(all.end(), text.begin(), text.end());
  inputs.texts = std::ssize(texts);
  inputs.text_states = all;
  passes_[0]->begin(inputs);
}

std::vector<float> CogVideoXPipeline::predict(int64_t step, std::span<const float> latents,
                                              double guidance) {
  std::span<const float> negative, prompt;
  if (passes_.size() == 2) {
    auto other = std::async(std::launch::async, [&] { return passes_[0]->predict(step, latents); });
    prompt = passes_[1]->predict(step, latents);
    negative = other.get();
  } else {
    prompt = passes_[0]->predict(step, latents);
    if (prompt.size() > latents.size()) {
      negative = prompt.first(latents.size());
      prompt = prompt.subspan(latents.size());
    }
  }
  std::vector<float> x(prompt.begin(), prompt.end());
  const auto weight = static_cast<float>(guidance);
  for (size_t i = 0; i < negative.size(); ++i) {
    x[i] = negative[i] + (weight * (prompt[i] - negative[i]));
  }
  return x;
}

VideoResult CogVideoXPipeline::generate(const VideoRequest& request) {
  check(request);
  CogVideoXSampler sampler(sampler_, request.steps);
  VideoResult result;
  const auto goes_on = [&](Stage stage, int64_t video, int64_t step) {
    return !request.on_progress || request.on_progress({stage, video, step});
  };
  if (!goes_on(Stage::encode, 0, 0)) return result;
  Lap lap;
  const auto texts = encode(request, result);
  result.timings.encode_ms = lap.ms();
  if (!goes_on(Stage::prepare, 0, 0)) return result;
  const LatentShape shape = latent_shape(request, vae_, transformer().patch_frames);
  begin(texts, {.grid = {shape.token_frames(), shape.token_rows(), shape.token_columns()},
                .text_states = {},
                .timesteps = sampler.timesteps()});
  result.timings.prepare_ms = lap.ms();
  for (int64_t video = 0; video < request.videos; ++video) {
    TorchGenerator generator(request.seed + static_cast<uint64_t>(video));
    const auto draw = [&] {
      std::vector<float> noise(static_cast<size_t>(shape.elems()));
      generator.normals(noise);
      return tokens_of_noise(shape, noise);
    };
    std::vector<float> latents = draw();
    if (request.on_latents) request.on_latents(video, 0, latents);
    for (int64_t step = 0; step < request.steps; ++step) {
      if (!goes_on(Stage::step, video, step)) return result;
      lap.ms();
      const int64_t t = sampler.timesteps()[static_cast<size_t>(step)];
      const double guidance =
          guidance_weight(request.guidance, request.dynamic_guidance, t, request.steps);
      sampler.step(step, predict(step, latents, guidance), latents,
                   [&](std::span<float> noise) { std::ranges::copy(draw(), noise.begin()); });
      require_finite(latents, step + 1, request.steps);
      result.timings.step_ms.push_back(lap.ms());
      if (request.on_latents) request.on_latents(video, step + 1, latents);
    }
    if (!goes_on(Stage::decode, video, request.steps)) return result;
    lap.ms();
    // Frames that only fill a token stand in front.
    const int64_t kept = ((request.frames - 1) / vae_.time_scale()) + 1;
    const std::vector<float> pixels = pixels_of_tokens(shape, latents);
    const auto frame = static_cast<size_t>(shape.channels * shape.height * shape.width);
    const auto frames = vae_.decode(std::span(pixels).last(static_cast<size_t>(kept) * frame),
                                    {.frames = kept, .height = shape.height, .width = shape.width});
    result.timings.decode_ms.push_back(lap.ms());
    if (request.on_video) request.on_video(video, frames);
  }
  result.complete = true;
  return result;
}

}  // namespace braid
