#include "braid/engine/diffusion/cogvideox_pipeline.h"

#include <cmath>
#include <future>
#include <utility>

#include "braid/engine/diffusion/noise_draws.h"
#include "braid/engine/diffusion/pipeline_checks.h"

namespace braid {
namespace {

using Stage = PipelineProgress::Stage;

constexpr int64_t kMostFrames = 1 << 16;
constexpr int64_t kMostVideos = 100000;
constexpr int64_t kMostTextTokens = 512;

DiffusersFolder open_cogvideox(const std::string& path) {
  DiffusersFolder folder = open_pipeline(path, "CogVideoXPipeline");
  folder.require_class("transformer", "CogVideoXTransformer3DModel");
  folder.require_class("text_encoder", "T5EncoderModel");
  folder.require_class("vae", "AutoencoderKLCogVideoX");
  return folder;
}

PipelineParts cogvideox_parts(const std::string& folder, const PipelineConfig& config) {
  PipelineParts parts = parts_of(open_cogvideox(folder), config);
  require_transformer(parts, "CogVideoXTransformer3DModel",
                      {"patch_embed.", "time_embedding.", "transformer_blocks.", "norm_final.",
                       "norm_out.", "proj_out."});
  return parts;
}

LatentShape latent_shape(const VideoRequest& request, const AutoencoderCogVideoXConfig& vae,
                         int64_t patch) {
  const int64_t frames = ((request.frames - 1) / vae.time_scale()) + 1;
  return {.channels = vae.latent_channels,
          .height = request.height / vae.scale(),
          .width = request.width / vae.scale(),
          .frames = ceil_div(frames, patch) * patch,
          .patch_frames = patch};
}

NoiseDraws noise_of(const VideoRequest& request, int64_t video, const LatentShape& shape,
                    DType type) {
  if (request.one_generator) return {request.seed, shape, type, request.videos, video};
  return {request.seed + static_cast<uint64_t>(video), shape, type};
}

}  // namespace

CogVideoXPipeline::Defaults CogVideoXPipeline::defaults_of(const CogVideoXConfig& c,
                                                           int64_t vae_scale) {
  return {.width = c.width * vae_scale,
          .height = c.height * vae_scale,
          .frames = c.frames,
          .fps = c.slice ? 16 : 8,
          .text_tokens = c.text_tokens};
}

CogVideoXPipeline::CogVideoXPipeline(std::optional<DiffusersFolder> folder, PipelineParts parts,
                                     PipelineConfig config)
    : config_(std::move(config)),
      folder_(std::move(folder)),
      parts_(std::move(parts)),
      sampler_(read_cogvideox_sampler_config(parts_.scheduler)),
      transformer_(read_cogvideox_config(parts_.transformer)),
      vae_config_(read_autoencoder_cogvideox_config(parts_.vae)),
      room_(room_of(config_, !folder_)),
      encoder_{.place = first_place(config_)},
      ranks_(choose_ranks()),
      order_(ranks_.order) {
  const auto record = [&](const char* name, const Network& network, int64_t values) {
    weights_.push_back({name, network.weight_bytes(), values});
  };
  record("transformer", passes()[0]->network(), 0);
  record("vae", decoder().network(), 0);
  require_agreement("vae's latents", vae_->channels(), "in_channels", transformer_.channels);
  if (!folder_) return;
  make_encoder();
  record("text_encoder", t5_->network(), t5_->value_bytes(kMostTextTokens));
  require_agreement("text_encoder", t5_->width(), "text_embed_dim", transformer_.text_dim);
}

CogVideoXPipeline::CogVideoXPipeline(PipelineParts parts, const PipelineConfig& config)
    : CogVideoXPipeline(std::nullopt, std::move(parts), config) {}

CogVideoXPipeline::CogVideoXPipeline(const std::string& folder, const PipelineConfig& config)
    : CogVideoXPipeline(open_cogvideox(folder), cogvideox_parts(folder, config), config) {}

PassChoice CogVideoXPipeline::choose_ranks() const {
  require_range("the number of cfg ranks", config_.cfg_ranks, config_.choose_sp ? 0 : 1, 2);
  const Defaults otherwise = defaults();
  const auto or_default = [](int64_t wanted, int64_t model) { return wanted > 0 ? wanted : model; };
  const LatentShape shape = latent_shape({.width = or_default(config_.width, otherwise.width),
                                          .height = or_default(config_.height, otherwise.height),
                                          .frames = or_default(config_.frames, otherwise.frames)},
                                         vae_config_, transformer_.patch_frames);
  return choose_passes(config_, transformer_,
                       or_default(config_.text_tokens, otherwise.text_tokens), shape.tokens(),
                       *parts_.transformer_weights, room_);
}

void CogVideoXPipeline::run_passes(std::optional<TextOrder> order) {
  order_ = order;
  CogVideoXTransformer& pass = *passes()[0];
  if (!mesh() || pass.network().schedule() == step_schedule()) return;
  pass.divide_by(*mesh(), step_schedule(), text_rows());
}

std::string CogVideoXPipeline::step_schedule() const {
  const bool no_room = ranks_.order == TextOrder::turns && order_ != TextOrder::turns;
  return no_room ? "sequence_parallel" : schedule();
}

std::vector<std::unique_ptr<CogVideoXTransformer>>& CogVideoXPipeline::passes() {
  if (!together_) t5_.reset(), vae_.reset();
  for (int i = static_cast<int>(passes_.size()); i < cfg_ranks(); ++i) {
    const int ranks = mesh() ? mesh()->ranks() : 1;
    NetworkConfig network = over_ranks(config_, mesh(), parts_.random_transformer, i * ranks);
    if (cfg_ranks() > 1) network.threads = config_.threads;
    network.schedule = step_schedule();
    network.text = text_rows();
    passes_.push_back(std::make_unique<CogVideoXTransformer>(parts_.transformer,
                                                             parts_.transformer_weights, network));
  }
  return passes_;
}

VideoDecoder& CogVideoXPipeline::decoder() {
  if (!together_) t5_.reset(), passes_.clear();
  if (!vae_) {
    // All ranks divide rows; any mode will do.
    std::optional<SequenceMesh> rows;
    if (const int R = config_.ranks(); R > 1) {
      const bool divided = config_.sp || config_.choose_sp;
      rows = sequence_mesh(SpMode::ring, divided ? config_.topology : Topology{.devices = R}, R);
    }
    vae_.emplace(parts_.vae, parts_.vae_weights, decoder_of(config_, rows, parts_.random_vae));
  }
  return *vae_;
}

void CogVideoXPipeline::make_encoder() {
  const bool on_gpu = encoder_.place != EncoderPlace::cpu;
  if (room_.apart || (!together_ && on_gpu)) passes_.clear(), vae_.reset();
  if (!t5_) t5_.emplace(*folder_, encoder_of(config_, encoder_.place), config_.variant);
}

void CogVideoXPipeline::place(std::vector<ComponentMemory>& components) {
  const bool on_cpu = encoder_.place == EncoderPlace::cpu;
  encoder_ = place_encoders(config_.encoders, components, room_);
  if (on_cpu == (encoder_.place == EncoderPlace::cpu)) return;
  t5_.reset();
  if (!on_cpu) make_encoder();
}

CogVideoXPipeline::Defaults CogVideoXPipeline::defaults() const {
  return defaults_of(transformer_, vae_config_.scale());
}

std::vector<std::pair<std::string, int64_t>> CogVideoXPipeline::weight_bytes() const {
  std::vector<ComponentMemory> all = weights_;
  if (t5_) component(all, "text_encoder").weights = t5_->network().weight_bytes();
  return weight_bytes_of(all);
}

PipelineMemory CogVideoXPipeline::memory(const VideoRequest& r) {
  const LatentShape shape = latent_shape(r, vae_config_, transformer_.patch_frames);
  const DecoderSize decoding{tiles_of(vae_config_), shape.height, shape.width,
                             [&](int64_t h, int64_t w) {
                               return decoder().value_bytes({kept_frames(r), h, w});
                             }};
  const int64_t texts = r.guidance > 1 && cfg_ranks() == 1 ? 2 : 1;
  const auto step_bytes = [&](std::optional<TextOrder> order) {
    run_passes(order);
    CogVideoXTransformer& pass = *passes()[0];
    const int64_t bytes =
        pass.value_bytes(pass.shape_of(texts, r.text_tokens, shape.tokens(), order));
    return bytes * (room_.is_gpu() ? 1 : cfg_ranks());
  };
  std::vector<ComponentMemory> components = components_in(room_, weights_);
  const std::optional<TextOrder> order =
      texts == 1 && ranks_.order ? TextOrder::apart : ranks_.order;
  component(components, "transformer").values = step_bytes(order);
  const bool tiled = plan_decoder(component(components, "vae"), decoding, r.tiles, room_);
  if (folder_) place(components);
  ComponentMemory& step = component(components, "transformer");
  const bool named = config_.schedule == "cfg_passes";
  const int64_t most = bytes_together(components, room_);
  if (most > room_.bytes() && texts > 1 && !named) {
    const int64_t less = step.values - step_bytes(TextOrder::apart);
    if (less > 0 && (most - less <= room_.bytes() || !fits(step, room_))) {
      step.values -= less;
    } else {
      run_passes(order);
    }
  }
  PipelineMemory plan = plan_memory(std::move(components), room_, tiled, decoding);
  if (folder_) plan.encoders = encoder_;
  return plan;
}

int64_t CogVideoXPipeline::kept_frames(const VideoRequest& r) const {
  return ((r.frames - 1) / vae_config_.time_scale()) + 1;
}

void CogVideoXPipeline::check(const VideoRequest& r) const {
  require_side("the width", r.width, unit());
  require_side("the height", r.height, unit());
  if (transformer_.slice) {  // positions beyond training's do not exist
    require_range("the width", r.width, unit(), transformer_.width * vae_config_.scale());
    require_range("the height", r.height, unit(), transformer_.height * vae_config_.scale());
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
  if (cfg_ranks() == 2 && r.guidance <= 1) {
    fail(ErrorCode::kInvalidArgument,
         "2 cfg ranks compute two passes, guidance {} takes one: wanted is guidance over 1, or 1 "
         "cfg rank",
         r.guidance);
  }
}

std::vector<std::vector<float>> CogVideoXPipeline::encode(const VideoRequest& request,
                                                          VideoResult& result) {
  std::vector<std::vector<float>> texts;
  const int64_t length = request.text_tokens;
  const auto read = [&](const std::string& prompt) {
    Lap lap;
    make_encoder();
    t5_->prepare(length);
    result.timings.encoders_ms += lap.ms();
    return t5_->encode(prompt, length);
  };
  const auto add = [&](const std::string& prompt, std::string_view what) {
    EncodedPrompt made = folder_ ? prompts_.get("t5", prompt, length, [&] { return read(prompt); })
                                 : random_prompt(texts.size() + 1, length * transformer().text_dim);
    if (!made.cut.empty()) {
      result.remarks.push_back(cut_remark(what, length, made.cut));
      if (request.strict) fail(ErrorCode::kInvalidArgument, "{}", result.remarks.back());
    }
    result.tokens = made.tokens;
    texts.push_back(std::move(made.values));
  };
  if (request.guidance > 1) add(request.negative, "the negative prompt");
  add(request.prompt, "the prompt");
  if (!folder_) result.remarks.emplace_back("random numbers are in the place of the prompt");
  return texts;
}

void CogVideoXPipeline::begin(const std::vector<std::vector<float>>& texts,
                              CogVideoXInputs inputs) {
  if (passes().size() == 2) {
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

std::vector<float> CogVideoXPipeline::predict(int64_t step, int64_t steps,
                                              std::span<const float> latents, double guidance) {
  std::span<const float> negative, prompt;
  if (passes_.size() == 2) {
    auto other = std::async(std::launch::async, [&] { return passes_[0]->predict(step, latents); });
    prompt = passes_[1]->predict(step, latents);
    negative = other.get();
    passes_[0]->require_finite(step, steps, latents, negative);
    passes_[1]->require_finite(step, steps, latents, prompt);
  } else {
    prompt = passes_[0]->predict(step, latents);
    passes_[0]->require_finite(step, steps, latents, prompt);
    if (prompt.size() > latents.size()) {
      negative = prompt.first(latents.size());
      prompt = prompt.subspan(latents.size());
    }
  }
  return guided(prompt, negative, guidance);
}

std::vector<RgbImage> CogVideoXPipeline::pictures(const VideoRequest& request,
                                                  std::span<const float> latents, int64_t frames) {
  const LatentShape shape = latent_shape(request, vae_config_, transformer_.patch_frames);
  const std::vector<float> pixels = pixels_of_tokens(shape, latents);
  const int64_t frame = shape.channels * shape.height * shape.width;
  // Frames that only fill a token stand in front.
  const int64_t first = std::ssize(pixels) - (kept_frames(request) * frame);
  return decoder().decode(
      std::span(pixels).subspan(static_cast<size_t>(first), static_cast<size_t>(frames * frame)),
      {.frames = frames, .height = shape.height, .width = shape.width}, tiled_);
}

VideoResult CogVideoXPipeline::generate(const VideoRequest& request) {
  check(request);
  CogVideoXSampler sampler(sampler_, request.steps);
  VideoResult result;
  together_ = true;  // prices free no component of the request before
  result.memory = memory(request);
  together_ = result.memory->together;
  if (request.on_memory) request.on_memory(*result.memory);
  const LatentShape shape = latent_shape(request, vae_config_, transformer_.patch_frames);
  tiled_ = decodes_in_tiles(tiles_of(vae_config_), vae_config_.scale(), shape.height, shape.width,
                            result.memory, request.tiles, result.remarks);
  const bool previews = can_preview(request.preview_every, together_, result.remarks);
  const auto goes_on = [&](Stage stage, int64_t video, int64_t step) {
    return !request.on_progress || request.on_progress({stage, video, step});
  };
  if (!goes_on(Stage::encode, 0, 0)) return result;
  Lap lap;
  const auto texts = encode(request, result);
  result.timings.encode_ms = lap.ms() - result.timings.encoders_ms;
  if (room_.apart) t5_.reset();
  if (!goes_on(Stage::prepare, 0, 0)) return result;
  const auto begin_steps = [&] {
    begin(texts, {.grid = {shape.token_frames(), shape.token_rows(), shape.token_columns()},
                  .text_states = {},
                  .timesteps = sampler.timesteps(),
                  .order = order_});
  };
  begin_steps();
  result.passes = request.guidance <= 1 ? "a single pass"
                  : cfg_ranks() == 2    ? "on two groups of ranks"
                                        : to_string(passes_[0]->order());
  result.timings.prepare_ms = lap.ms();
  for (int64_t video = 0; video < request.videos; ++video) {
    NoiseDraws draws = noise_of(request, video, shape, config_.values());
    std::vector<float> latents = draws.next();
    if (request.on_latents) request.on_latents(video, 0, latents);
    if (passes_.empty()) begin_steps();  // freed for the decoder
    for (int64_t step = 0; step < request.steps; ++step) {
      if (!goes_on(Stage::step, video, step)) return result;
      lap.ms();
      draws.draw_ahead();
      const int64_t t = sampler.timesteps()[static_cast<size_t>(step)];
      const double guidance =
          guidance_weight(request.guidance, request.dynamic_guidance, t, request.steps);
      sampler.step(step, predict(step, request.steps, latents, guidance), latents,
                   [&](std::span<float> noise) { std::ranges::copy(draws.next(), noise.begin()); });
      result.timings.step_ms.push_back(lap.ms());
      if (request.on_latents) request.on_latents(video, step + 1, latents);
      if (previews && preview_due(request.preview_every, step + 1, request.steps)) {
        request.on_preview(video, step + 1, pictures(request, latents, 1).front());
      }
    }
    if (mesh()) {
      const bool apart = passes_[0]->order() == TextOrder::apart;
      result.step_bytes =
          (apart ? std::ssize(texts) : 1) * sent_bytes(passes_[0]->bound_step(), mesh()->ranks());
    }
    if (!goes_on(Stage::decode, video, request.steps)) return result;
    lap.ms();
    const auto frames = pictures(request, latents, kept_frames(request));
    result.timings.decode_ms.push_back(lap.ms());
    if (!tiled_)
      result.decode_bytes =
          sent_bytes(vae_->bound({kept_frames(request), shape.height, shape.width}),
                     vae_->ranks(shape.height));
    if (request.on_video) request.on_video(video, frames);
  }
  result.complete = true;
  return result;
}

}  // namespace braid
