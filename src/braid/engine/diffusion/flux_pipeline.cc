#include "braid/engine/diffusion/flux_pipeline.h"

#include <cmath>
#include <utility>

#include "braid/engine/diffusion/pipeline_checks.h"
#include "braid/engine/diffusion/random_source.h"
#include "braid/engine/diffusion/torch_generator.h"

namespace braid {
namespace {

using Stage = ImageProgress::Stage;

constexpr int64_t kMostSteps = 10000;
constexpr int64_t kMostImages = 100000;
constexpr int64_t kMostTextTokens = 512;

DiffusersFolder open_flux(const std::string& path) {
  DiffusersFolder folder(path);
  if (folder.pipeline() != "FluxPipeline") {
    fail(ErrorCode::kUnsupported, "{}: is a pipeline of class {}, wanted is FluxPipeline", path,
         folder.pipeline());
  }
  folder.require_class("transformer", "FluxTransformer2DModel");
  folder.require_class("scheduler", "FlowMatchEulerDiscreteScheduler");
  folder.require_class("text_encoder", "CLIPTextModel");
  folder.require_class("text_encoder_2", "T5EncoderModel");
  folder.require_class("vae", "AutoencoderKL");
  return folder;
}

// The noise of image k, in the order in which it is drawn.
std::vector<float> draw(const ImageRequest& request, const LatentShape& shape, int64_t image) {
  const auto n = static_cast<size_t>(shape.elems());
  if (!request.one_generator) {
    std::vector<float> noise(n);
    TorchGenerator(request.seed + static_cast<uint64_t>(image)).normals(noise);
    return noise;
  }
  std::vector<float> all(n * static_cast<size_t>(request.images));
  TorchGenerator(request.seed).normals(all);
  const auto begin = all.begin() + (image * shape.elems());
  return {begin, begin + shape.elems()};
}

// Options for work of a single rank, which uses the threads of all ranks.
NetworkConfig one_rank(const PipelineConfig& config, const RandomWeights* random = nullptr) {
  return {.threads = config.sp ? config.threads * config.topology.ranks() : config.threads,
          .device = config.device,
          .dtype = config.dtype,
          .random = random};
}

NetworkConfig network_of(const FluxConfig& flux, const PipelineConfig& config,
                         const RandomWeights* random) {
  NetworkConfig network = one_rank(config, random);
  network.threads = config.threads;
  if (config.sp) {
    network.mesh = sequence_mesh(*config.sp, config.topology, flux.heads, config.degrees);
  }
  return network;
}

NetworkConfig encoder_of(const PipelineConfig& config) {
  NetworkConfig network = one_rank(config);
  if (config.encode_on_cpu) network.device = {};
  return network;
}

FluxParts parts_of(const DiffusersFolder& folder, const PipelineConfig& config) {
  return {.scheduler = folder.config("scheduler", "scheduler_config.json"),
          .transformer = folder.config("transformer"),
          .vae = folder.config("vae"),
          .transformer_weights = folder.weights("transformer", config.variant),
          .vae_weights = folder.weights("vae", config.variant)};
}

}  // namespace

FluxParts random_flux(const std::string& path, DType dtype) {
  const JsonObject file = JsonObject::read(path);
  const auto part = [&](const char* name) {
    if (auto object = file.object(name)) return *object;
    fail(ErrorCode::kNotFound, "{}: there is no object '{}'", path, name);
  };
  FluxParts parts{
      .scheduler = part("scheduler"), .transformer = part("transformer"), .vae = part("vae")};
  const WeightDtype all = [dtype](std::string_view) { return dtype; };
  const FluxConfig flux = read_flux_config(parts.transformer);
  const Program transformer[] = {flux_text(flux, 1, all), flux_modulation(flux, 1, all),
                                 flux_step(flux, {.text = 1, .image = 1}, all)};
  const Program vae[] = {
      autoencoder_kl_decode(read_autoencoder_kl_config(parts.vae), {.height = 2, .width = 2}, all)};
  auto transformer_weights = std::make_unique<RandomSource>(path, transformer, 1);
  auto vae_weights = std::make_unique<RandomSource>(path, vae, 2);
  parts.random_transformer = &transformer_weights->weights();
  parts.random_vae = &vae_weights->weights();
  parts.transformer_weights = std::move(transformer_weights);
  parts.vae_weights = std::move(vae_weights);
  return parts;
}

FluxPipeline::FluxPipeline(FluxParts parts, const PipelineConfig& config)
    : sampler_(read_flow_match_config(parts.scheduler)),
      transformer_weights_(std::move(parts.transformer_weights)),
      transformer_(
          parts.transformer, *transformer_weights_,
          network_of(read_flux_config(parts.transformer), config, parts.random_transformer)),
      vae_(parts.vae, std::move(parts.vae_weights), one_rank(config, parts.random_vae)) {
  require_agreement("vae's latents in patches of 2 x 2", 4 * vae_.channels(), "in_channels",
                    transformer_.config().in_channels);
}

FluxPipeline::FluxPipeline(const DiffusersFolder& folder, const PipelineConfig& config)
    : FluxPipeline(parts_of(folder, config), config) {
  const NetworkConfig encoder = encoder_of(config);
  clip_.emplace(folder, encoder, config.variant);
  t5_.emplace(folder, encoder, config.variant, "_2");
  const FluxConfig& c = transformer_.config();
  require_agreement("text_encoder", clip_->width(), "pooled_projection_dim", c.pooled_dim);
  require_agreement("text_encoder_2", t5_->width(), "joint_attention_dim", c.text_dim);
}

FluxPipeline::FluxPipeline(const std::string& folder, const PipelineConfig& config)
    : FluxPipeline(open_flux(folder), config) {}

std::vector<std::pair<std::string, int64_t>> FluxPipeline::weight_bytes() const {
  std::vector<std::pair<std::string, int64_t>> out = {
      {"transformer", transformer_.network().weight_bytes()},
      {"vae", vae_.network().weight_bytes()}};
  if (clip_) out.emplace_back("text_encoder", clip_->network().weight_bytes());
  if (t5_) out.emplace_back("text_encoder_2", t5_->network().weight_bytes());
  return out;
}

FluxPipeline::Defaults FluxPipeline::defaults() const {
  const int64_t size = 128 * vae_.scale();
  // A model without a guidance input was distilled to few steps (schnell).
  if (!transformer_.config().guidance) return {size, 4, 0, 256};
  return {size, 28, 3.5, 512};
}

void FluxPipeline::check(const ImageRequest& r) const {
  require_side("the width", r.width, unit());
  require_side("the height", r.height, unit());
  require_range("the number of steps", r.steps, 1, kMostSteps);
  require_range("the number of images", r.images, 1, kMostImages);
  require_range("the number of text tokens", r.text_tokens, 1, kMostTextTokens);
  if (!std::isfinite(r.guidance)) {
    fail(ErrorCode::kInvalidArgument, "guidance is {}, wanted is a number", r.guidance);
  }
}

void FluxPipeline::encode(const ImageRequest& request, ImageResult& result) {
  if (!t5_) {
    const FluxConfig& c = transformer_.config();
    pooled_ = random_prompt(1, c.pooled_dim);
    text_ = random_prompt(2, request.text_tokens * c.text_dim);
    result.remarks.emplace_back("random numbers are in the place of the prompt");
    return;
  }
  pooled_ = clip_->encode(request.prompt);
  text_ = t5_->encode(request.prompt, request.text_tokens);
  result.clip_tokens = pooled_.tokens;
  result.t5_tokens = text_.tokens;
  if (!text_.cut.empty()) {
    result.remarks.push_back(fmt::format("the prompt has more than {} tokens: this was cut off: {}",
                                         request.text_tokens, text_.cut));
  }
  if (!pooled_.cut.empty()) {
    result.remarks.push_back(fmt::format(
        "the CLIP encoder reads 77 tokens of the prompt, without this: {}", pooled_.cut));
  }
  if (request.strict && !result.remarks.empty()) {
    fail(ErrorCode::kInvalidArgument, "{}", result.remarks[0]);
  }
}

ImageResult FluxPipeline::generate(const ImageRequest& request) {
  check(request);
  ImageResult result;
  const auto goes_on = [&](Stage stage, int64_t image, int64_t step) {
    return !request.on_progress || request.on_progress({stage, image, step});
  };
  if (!goes_on(Stage::encode, 0, 0)) return result;
  Lap lap;
  encode(request, result);
  result.timings.encode_ms = lap.ms();
  if (!goes_on(Stage::prepare, 0, 0)) return result;

  const LatentShape shape{.channels = vae_.channels(),
                          .height = request.height / vae_.scale(),
                          .width = request.width / vae_.scale()};
  const std::vector<float> sigmas = flow_match_sigmas(sampler_, request.steps, shape.tokens());
  transformer_.begin({.batch = 1,
                      .token_rows = shape.token_rows(),
                      .token_columns = shape.token_columns(),
                      .text = text_.values,
                      .pooled = pooled_.values,
                      .sigmas = std::span(sigmas).first(static_cast<size_t>(request.steps)),
                      .guidance = static_cast<float>(request.guidance)});
  result.timings.prepare_ms = lap.ms();
  for (int64_t image = 0; image < request.images; ++image) {
    std::vector<float> latents = tokens_of_noise(shape, draw(request, shape, image));
    if (request.on_latents) request.on_latents(image, 0, latents);
    for (int64_t step = 0; step < request.steps; ++step) {
      if (!goes_on(Stage::step, image, step)) return result;
      lap.ms();
      const auto i = static_cast<size_t>(step);
      euler_step(latents, transformer_.velocity(step, latents), sigmas[i], sigmas[i + 1]);
      require_finite(latents, step + 1, request.steps);
      result.timings.step_ms.push_back(lap.ms());
      if (request.on_latents) request.on_latents(image, step + 1, latents);
    }
    if (!goes_on(Stage::decode, image, request.steps)) return result;
    lap.ms();
    const std::vector<float> pixels =
        vae_.decode(pixels_of_tokens(shape, latents), shape.height, shape.width);
    const RgbImage picture = rgb_image(pixels, request.height, request.width);
    result.timings.decode_ms.push_back(lap.ms());
    if (request.on_image) request.on_image(image, picture);
  }
  result.complete = true;
  return result;
}

}  // namespace braid
