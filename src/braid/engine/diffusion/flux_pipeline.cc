#include "braid/engine/diffusion/flux_pipeline.h"

#include <cmath>
#include <utility>

#include "braid/engine/diffusion/pipeline_checks.h"
#include "braid/engine/diffusion/torch_generator.h"

namespace braid {
namespace {

using Stage = PipelineProgress::Stage;

constexpr int64_t kMostSteps = 10000;
constexpr int64_t kMostImages = 100000;
constexpr int64_t kMostTextTokens = 512;

DiffusersFolder open_flux(const std::string& path) {
  DiffusersFolder folder = open_pipeline(path, "FluxPipeline");
  folder.require_class("transformer", "FluxTransformer2DModel");
  folder.require_class("scheduler", "FlowMatchEulerDiscreteScheduler");
  folder.require_class("text_encoder", "CLIPTextModel");
  folder.require_class("text_encoder_2", "T5EncoderModel");
  folder.require_class("vae", "AutoencoderKL");
  return folder;
}

PipelineParts flux_parts(const std::string& folder, const PipelineConfig& config) {
  PipelineParts parts = parts_of(open_flux(folder), config);
  require_transformer(
      parts, "FluxTransformer2DModel",
      {"x_embedder.", "context_embedder.", "time_text_embed.", "transformer_blocks.",
       "single_transformer_blocks.", "norm_out.", "proj_out."});
  return parts;
}

// The noise of image k, in drawing order.
std::vector<float> draw(const ImageRequest& request, const LatentShape& shape, int64_t image,
                        DType type) {
  const auto n = static_cast<size_t>(shape.elems());
  if (!request.one_generator) {
    std::vector<float> noise(n);
    TorchGenerator(request.seed + static_cast<uint64_t>(image), type).normals(noise);
    return noise;
  }
  std::vector<float> all(n * static_cast<size_t>(request.first + request.images));
  TorchGenerator(request.seed, type).normals(all);
  const auto begin = all.begin() + ((request.first + image) * shape.elems());
  return {begin, begin + shape.elems()};
}

// The ranks' division of steps for the picture in `config`.
StepChoice choice_for(const FluxConfig& flux, int64_t vae_scale, const PipelineConfig& config) {
  const auto otherwise = FluxPipeline::defaults_of(flux, vae_scale);
  const auto tokens_of = [&](int64_t side) {
    return ceil_div(side > 0 ? side : otherwise.size, 2 * vae_scale);
  };
  FluxShape shape{.text = config.text_tokens > 0 ? config.text_tokens : otherwise.text_tokens,
                  .image = tokens_of(config.width) * tokens_of(config.height)};
  const DType dtype = config.values();
  return choice_of(config, config.topology, flux.heads, [&](TextRows text) {
    shape.apart = text == TextRows::replicated;
    return std::vector<StepForm>{{text, flux_step(few_blocks(flux), shape, all_in(dtype), dtype),
                                  FluxTransformer::row_parts(text)}};
  });
}

}  // namespace

FluxPipeline::Defaults FluxPipeline::defaults_of(const FluxConfig& transformer, int64_t vae_scale) {
  const int64_t size = 128 * vae_scale;
  // A model without a guidance input was distilled to few steps (schnell).
  if (!transformer.guidance) return {size, 4, 0, 256};
  return {size, 28, 3.5, 512};
}

FluxPipeline::FluxPipeline(std::optional<DiffusersFolder> folder, PipelineParts parts,
                           PipelineConfig config)
    : config_(std::move(config)),
      folder_(std::move(folder)),
      parts_(std::move(parts)),
      sampler_(read_flow_match_config(parts_.scheduler)),
      flux_(read_flux_config(parts_.transformer)),
      vae_config_(read_autoencoder_kl_config(parts_.vae)),
      room_(room_of(config_, !folder_)),
      encoders_{.place = first_place(config_)} {
  if (config_.ranks() > 1) {
    StepChoice choice = choice_for(flux_, vae_config_.scale(), config_);
    mesh_ = choice.mesh;
    schedule_ = choice.schedule;
    text_rows_ = choice.text;
    priced_ = std::move(choice.priced);
  }
  const auto record = [&](const char* name, const Network& network, int64_t values) {
    weights_.push_back({name, network.weight_bytes(), values});
  };
  record("transformer", steps().network(), 0);
  record("vae", decoder().network(), 0);
  require_agreement("vae's latents in patches of 2 x 2", 4 * vae_->channels(), "in_channels",
                    flux_.in_channels);
  if (!folder_) return;
  make_encoders();
  record("text_encoder", clip_->network(), clip_->value_bytes());
  record("text_encoder_2", t5_->network(), t5_->value_bytes(kMostTextTokens));
  require_agreement("text_encoder", clip_->width(), "pooled_projection_dim", flux_.pooled_dim);
  require_agreement("text_encoder_2", t5_->width(), "joint_attention_dim", flux_.text_dim);
}

FluxPipeline::FluxPipeline(PipelineParts parts, const PipelineConfig& config)
    : FluxPipeline(std::nullopt, std::move(parts), config) {}

FluxPipeline::FluxPipeline(const std::string& folder, const PipelineConfig& config)
    : FluxPipeline(open_flux(folder), flux_parts(folder, config), config) {}

FluxTransformer& FluxPipeline::steps() {
  if (!together_) clip_.reset(), t5_.reset(), vae_.reset();
  if (!transformer_) {
    NetworkConfig network = over_ranks(config_, mesh_, parts_.random_transformer);
    network.schedule = schedule_;
    network.text = text_rows_;
    transformer_.emplace(parts_.transformer, *parts_.transformer_weights, network);
  }
  return *transformer_;
}

VaeDecoder& FluxPipeline::decoder() {
  if (!together_) clip_.reset(), t5_.reset(), transformer_.reset();
  if (!vae_) {
    vae_.emplace(parts_.vae, parts_.vae_weights, decoder_of(config_, mesh_, parts_.random_vae));
  }
  return *vae_;
}

void FluxPipeline::make_encoders() {
  const bool on_gpu = encoders_.place != EncoderPlace::cpu;
  if (room_.apart || (!together_ && on_gpu)) transformer_.reset(), vae_.reset();
  if (t5_) return;
  const NetworkConfig network = encoder_of(config_, encoders_.place);
  clip_.emplace(*folder_, network, config_.variant);
  t5_.emplace(*folder_, network, config_.variant, "_2");
}

void FluxPipeline::place(std::vector<ComponentMemory>& components) {
  const bool on_cpu = encoders_.place == EncoderPlace::cpu;
  encoders_ = place_encoders(config_.encoders, components, room_);
  if (on_cpu == (encoders_.place == EncoderPlace::cpu)) return;
  clip_.reset(), t5_.reset();
  if (!on_cpu) make_encoders();
}

std::vector<std::pair<std::string, int64_t>> FluxPipeline::weight_bytes() const {
  std::vector<ComponentMemory> all = weights_;
  if (t5_) {
    component(all, "text_encoder").weights = clip_->network().weight_bytes();
    component(all, "text_encoder_2").weights = t5_->network().weight_bytes();
  }
  return weight_bytes_of(all);
}

PipelineMemory FluxPipeline::memory(const ImageRequest& r) {
  const LatentShape shape = latents_of(r);
  const DecoderSize decoding{tiles_of(vae_config_), shape.height, shape.width,
                             [&](int64_t h, int64_t w) { return decoder().value_bytes(h, w); }};
  std::vector<ComponentMemory> components = components_in(room_, weights_);
  component(components, "transformer").values =
      steps().value_bytes({.text = r.text_tokens, .image = shape.tokens()});
  const bool tiled = plan_decoder(component(components, "vae"), decoding, r.tiles, room_);
  if (folder_) place(components);
  PipelineMemory plan = plan_memory(std::move(components), room_, tiled, decoding);
  if (folder_) plan.encoders = encoders_;
  return plan;
}

LatentShape FluxPipeline::latents_of(const ImageRequest& r) const {
  return {.channels = vae_config_.latent_channels,
          .height = r.height / vae_config_.scale(),
          .width = r.width / vae_config_.scale()};
}

FluxPipeline::Defaults FluxPipeline::defaults() const {
  return defaults_of(flux_, vae_config_.scale());
}

void FluxPipeline::check(const ImageRequest& r) const {
  require_side("the width", r.width, unit());
  require_side("the height", r.height, unit());
  require_range("the number of steps", r.steps, 1, kMostSteps);
  require_range("the number of images", r.images, 1, kMostImages);
  require_range("the first image", r.first, 0, kMostImages);
  require_range("the number of text tokens", r.text_tokens, 1, kMostTextTokens);
  if (!std::isfinite(r.guidance)) {
    fail(ErrorCode::kInvalidArgument, "guidance is {}, wanted is a number", r.guidance);
  }
}

void FluxPipeline::encode(const ImageRequest& request, ImageResult& result) {
  if (!folder_) {
    pooled_ = random_prompt(1, flux_.pooled_dim);
    text_ = random_prompt(2, request.text_tokens * flux_.text_dim);
    result.remarks.emplace_back("random numbers are in the place of the prompt");
    return;
  }
  const auto& prompt = request.prompt;
  const int64_t length = request.text_tokens;
  const auto read = [&](auto& encoder, auto... tokens) {
    Lap lap;
    make_encoders();
    encoder->prepare(tokens...);
    result.timings.encoders_ms += lap.ms();
    return encoder->encode(prompt, tokens...);
  };
  text_ = prompts_.get("t5", prompt, length, [&] { return read(t5_, length); });
  pooled_ = prompts_.get("clip", prompt, 0, [&] { return read(clip_); });
  result.clip_tokens = pooled_.tokens;
  result.t5_tokens = text_.tokens;
  if (!text_.cut.empty()) {
    result.remarks.push_back(cut_remark("the prompt", request.text_tokens, text_.cut));
  }
  if (!pooled_.cut.empty()) {
    result.remarks.push_back(cut_remark("for the CLIP encoder the prompt", 77, pooled_.cut));
  }
  if (request.strict && !result.remarks.empty()) {
    fail(ErrorCode::kInvalidArgument, "{}", result.remarks[0]);
  }
}

RgbImage FluxPipeline::picture(const ImageRequest& request, std::span<const float> latents) {
  const LatentShape shape = latents_of(request);
  const std::vector<float> rows = pixels_of_tokens(shape, latents);
  if (!tiled_) {
    return rgb_image(decoder().decode(rows, shape.height, shape.width), request.height,
                     request.width);
  }
  return rgb_image(decoder().decode_tiles(rows, shape.height, shape.width), request.height,
                   request.width);
}

ImageResult FluxPipeline::generate(const ImageRequest& request) {
  check(request);
  ImageResult result;
  together_ = true;  // prices free no component of the request before
  result.memory = memory(request);
  together_ = result.memory->together;
  if (request.on_memory) request.on_memory(*result.memory);
  const LatentShape shape = latents_of(request);
  tiled_ = decodes_in_tiles(tiles_of(vae_config_), vae_config_.scale(), shape.height, shape.width,
                            result.memory, request.tiles, result.remarks);
  const bool previews = can_preview(request.preview_every, together_, result.remarks);
  const auto goes_on = [&](Stage stage, int64_t image, int64_t step) {
    return !request.on_progress || request.on_progress({stage, image, step});
  };
  if (!goes_on(Stage::encode, 0, 0)) return result;
  Lap lap;
  encode(request, result);
  result.timings.encode_ms = lap.ms() - result.timings.encoders_ms;
  if (room_.apart) clip_.reset(), t5_.reset();
  if (!goes_on(Stage::prepare, 0, 0)) return result;

  const std::vector<float> sigmas = flow_match_sigmas(sampler_, request.steps, shape.tokens());
  const auto begin = [&](FluxTransformer& transformer) {
    transformer.begin({.batch = 1,
                       .token_rows = shape.token_rows(),
                       .token_columns = shape.token_columns(),
                       .text = text_.values,
                       .pooled = pooled_.values,
                       .sigmas = std::span(sigmas).first(static_cast<size_t>(request.steps)),
                       .guidance = static_cast<float>(request.guidance)});
  };
  begin(steps());
  result.timings.prepare_ms = lap.ms();
  for (int64_t image = 0; image < request.images; ++image) {
    std::vector<float> latents =
        tokens_of_noise(shape, draw(request, shape, image, config_.values()));
    if (request.on_latents) request.on_latents(image, 0, latents);
    const bool freed = !transformer_;  // for the decoder
    FluxTransformer& transformer = steps();
    if (freed) begin(transformer);
    for (int64_t step = 0; step < request.steps; ++step) {
      if (!goes_on(Stage::step, image, step)) return result;
      lap.ms();
      const auto i = static_cast<size_t>(step);
      const auto velocity = transformer.velocity(step, latents);
      require_finite(velocity, step + 1, request.steps,
                     [&] { return transformer.first_block_beyond_finite(step, latents); });
      euler_step(latents, velocity, sigmas[i], sigmas[i + 1]);
      result.timings.step_ms.push_back(lap.ms());
      if (request.on_latents) request.on_latents(image, step + 1, latents);
      if (previews && preview_due(request.preview_every, step + 1, request.steps)) {
        request.on_preview(image, step + 1, picture(request, latents));
      }
    }
    if (mesh_) result.step_bytes = sent_bytes(transformer.bound_step(), mesh_->ranks());
    if (!goes_on(Stage::decode, image, request.steps)) return result;
    lap.ms();
    const RgbImage made = picture(request, latents);
    result.timings.decode_ms.push_back(lap.ms());
    if (!tiled_) {
      result.decode_bytes =
          sent_bytes(vae_->bound(shape.height, shape.width), vae_->ranks(shape.height));
    }
    if (request.on_image) request.on_image(image, made);
  }
  result.complete = true;
  return result;
}

}  // namespace braid
