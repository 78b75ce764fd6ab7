#include <fmt/format.h>

#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>
#include <random>

#include "braid/commands.h"
#include "braid/engine/diffusion/flux_pipeline.h"
#include "braid/interrupt.h"
#include "braid/io/json_text.h"
#include "braid/io/media/picture_file.h"
#include "braid/io/text_file.h"
#include "braid/latent_dump.h"
#include "braid/options.h"
#include "braid/picture_options.h"
#include "braid/progress.h"
#include "braid/strict_values.h"
#include "braid/text_io.h"
#include "braid/version.h"

namespace braid::app {
namespace {

using Clock = std::chrono::steady_clock;
using Json = nlohmann::ordered_json;

double ms_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

struct ImageOptions : PictureOptions {
  ImageOptions() : PictureOptions("image") { output = "image.png"; }

  int64_t first = 0;  // of a batch's pictures, from --from-png
  std::string from_png;
};

void check(const ImageOptions& o) {
  o.PictureOptions::check();
  require_picture_format(picture_format(o.output));
  if (o.cfg_ranks && *o.cfg_ranks != 1) {
    fail(ErrorCode::kInvalidArgument,
         "--cfg-ranks is {}: Flux.1 has one pass, nothing to divide; --sp divides a pass's tokens",
         *o.cfg_ranks);
  }
  for (int64_t k = 0; k < o.count; ++k) require_writable("-o", o.output_of(k));
}

// Takes the settings of --from-png's picture for options that are not given. A batch's picture k
// comes from seed, mode and k together: another seed or mode leaves k out.
void take_settings(ImageOptions& o) {
  const PngFile png = decode_png(read_text(o.from_png), o.from_png);
  for (const auto& [keyword, text] : png.texts) {
    if (keyword != "parameters" || !text.starts_with("{")) continue;
    const JsonObject settings(o.from_png, parse_json(text, o.from_png));
    const auto take = [&]<class T>(std::optional<T>& option, const char* key) {
      if (!option) option = settings.find<T>(key);
    };
    if (!o.file) take(o.prompt, "prompt");
    if (!o.size) take(o.width, "width"), take(o.height, "height");
    take(o.steps, "steps");
    take(o.guidance, "guidance");
    take(o.text_tokens, "text_tokens");
    o.vae_tiling |= settings.get_or<bool>("vae_tiling", false);
    const bool same_noise = !o.seed && !o.seed_mode;
    if (!o.seed) o.seed = std::stoull(settings.get_or<std::string>("seed", "0"));
    if (!same_noise) return;
    take(o.seed_mode, "seed_mode");
    if (o.one_generator()) o.first = settings.get_or<int64_t>("image", 0);
    require_between("'image' of " + o.from_png, o.first, 0, 100000 - 1);
    return;
  }
  fail(ErrorCode::kInvalidArgument, "{}: no picture of braid image: it holds no settings",
       o.from_png);
}

ImageRequest request_of(const ImageOptions& o, const FluxPipeline& pipeline) {
  const FluxPipeline::Defaults otherwise = pipeline.defaults();
  const auto [width, height] = o.sides(otherwise.size, otherwise.size);
  return {.prompt = o.prompt_text(),
          .width = width,
          .height = height,
          .steps = o.steps.value_or(otherwise.steps),
          .guidance = o.guidance.value_or(otherwise.guidance),
          .text_tokens = o.text_tokens.value_or(otherwise.text_tokens),
          .seed = o.seed ? *o.seed : std::random_device()(),
          .images = o.count,
          .first = o.first,
          .one_generator = o.one_generator(),
          .strict = o.strict,
          .tiles = o.vae_tiling};
}

// What made a picture, for the file itself.
PngTexts settings_of(const ImageOptions& o, const ImageRequest& r, int64_t k, bool tiled) {
  const Json settings = {{"prompt", r.prompt},
                         {"model", std::filesystem::path(o.model()).filename().string()},
                         {"width", r.width},
                         {"height", r.height},
                         {"steps", r.steps},
                         {"guidance", r.guidance},
                         {"seed", std::to_string(o.seed_of(r.seed, k))},
                         {"seed_mode", o.seeds()},
                         {"image", r.first + k},
                         {"text_tokens", r.text_tokens},
                         {"vae_tiling", tiled}};
  return {{"parameters", json_text(settings)}, {"Software", version_line()}};
}

Json report_of(const ImageOptions& o, const ImageRequest& r, const ImageResult& result) {
  Json images = Json::array();
  for (int64_t k = 0; k < r.images; ++k) {
    images.push_back({{"file", o.output_of(k).string()}, {"seed", o.seed_of(r.seed, k)}});
  }
  return {
      {"images", std::move(images)},
      {"prompt", r.prompt},
      {"width", r.width},
      {"height", r.height},
      {"steps", r.steps},
      {"guidance", r.guidance},
      {"seed_mode", o.seeds()},
      {"tokens", {{"clip", result.clip_tokens}, {"t5", result.t5_tokens}, {"text", r.text_tokens}}},
      {"memory", memory_report(result.memory)}};
}

void run(ImageOptions o) {
  if (!o.from_png.empty()) take_settings(o);
  check(o);
  std::optional<LatentDump> dump;
  if (!o.dump.empty()) dump.emplace(o.dump);
  const PipelineConfig config = o.config();
  const auto start = Clock::now();
  Progress progress;
  progress.announce("loading " + o.model());
  FluxPipeline pipeline = o.folder.empty()
                              ? FluxPipeline(random_flux(o.random_weights, config.dtype), config)
                              : FluxPipeline(o.folder, config);
  const double load_ms = ms_since(start);
  progress.clear();
  ImageRequest request = request_of(o, pipeline);
  require_picture_sides(picture_format(o.output), request.width, request.height);
  if (o.negative && !o.negative->empty()) {
    print_remarks({"--negative is ignored: Flux.1 takes no negative prompt"});
  }
  if (o.guidance && o.from_png.empty() && !pipeline.transformer().guidance) {
    print_remarks({"--guidance is ignored: this model takes no guidance scale"});
  }
  Interrupt interrupt;
  auto step_began = Clock::now();
  double ms_per_step = 0;
  request.on_progress = [&](const PipelineProgress& p) {
    if (p.step > 0) ms_per_step = ms_since(step_began);
    step_began = Clock::now();
    progress.show(progress_line(p, o, request.steps, ms_per_step));
    return !interrupt.asked();
  };
  request.on_memory = [&](const PipelineMemory& m) { say_memory(m, config.device, progress); };
  if (dump) {
    request.on_latents = [&](int64_t image, int64_t step, std::span<const float> latents) {
      dump->add(image, step, latents, pipeline.transformer().in_channels);
    };
  }
  request.preview_every = o.preview_every;
  request.on_preview = [&](int64_t k, int64_t step, const RgbImage& image) {
    o.write_picture(o.preview_of(k, step), image, {});
  };
  std::vector<double> write_ms;
  request.on_image = [&](int64_t k, const RgbImage& image) {
    const auto begin = Clock::now();
    const std::string path = o.output_of(k).string();
    o.write_picture(path, image, settings_of(o, request, k, pipeline.tiled()));
    write_ms.push_back(ms_since(begin));
    progress.clear();
    if (!o.json) print(path + "\n");
  };
  const ImageResult result = pipeline.generate(request);
  progress.clear();
  if (!pipeline.priced().empty()) {
    print_remarks({choice_remark(pipeline.mesh(), pipeline.schedule(), pipeline.text_rows())});
  }
  print_remarks(result.remarks);
  if (!result.complete) throw Interrupted();
  if (dump) dump->write();
  if (o.json) {
    Json report = report_of(o, request, result);
    report.update(drawing_report(o, config, pipeline.mesh(), result.timings,
                                 pipeline.weight_bytes(), load_ms, write_ms, result.step_bytes,
                                 result.decode_bytes));
    report.update({{"schedule", pipeline.schedule()},
                   {"text_rows", to_string(pipeline.text_rows())},
                   {"priced", pipeline.priced()},
                   {"vae_tiling", pipeline.tiled()}});
    print(json_text(report) + "\n");
    return;
  }
  double steps_ms = 0;
  for (double ms : result.timings.step_ms) steps_ms += ms;
  std::fprintf(stderr, "\nseed %llu, %lld x %lld, %lld steps of %.2f s, in all %.1f s\n",
               static_cast<unsigned long long>(request.seed), static_cast<long long>(request.width),
               static_cast<long long>(request.height), static_cast<long long>(request.steps),
               steps_ms / 1000 / static_cast<double>(result.timings.step_ms.size()),
               ms_since(start) / 1000);
}

}  // namespace

void add_image(CLI::App& app) {
  auto* command = app.add_subcommand("image", "Draws pictures from a text (Flux.1)");
  const auto o = std::make_shared<ImageOptions>();
  o->add_to(*command);
  command->add_option("--random-weights", o->random_weights,
                      "in place of -m: random weights of a shape, configs/flux-1-dev.json, and "
                      "random numbers in place of the prompt");
  command
      ->add_option("--negative,--negative-prompt", o->negative,
                   "what not to draw; Flux.1 ignores it")
      ->type_name(kMayBeEmpty);
  command->add_option("--steps,--num-inference-steps", o->steps,
                      "steps from noise to picture (default 28, without a guidance input 4)");
  command->add_option("--guidance,--guidance-scale,--cfg-scale", o->guidance,
                      "how closely the picture follows the text (default 3.5)");
  command->add_option("-o,--output", o->output,
                      "the file, image.png, or .jpg, .webp; with -n 3 image-1.png to image-3.png");
  command->add_option("--text-tokens,--max-sequence-length", o->text_tokens,
                      "tokens of text that the model sees (default 512, without guidance 256)");
  command->add_option("--from-png", o->from_png,
                      "a picture of this program: its prompt, size, steps, guidance and seed");
  command
      ->add_option("--cfg-ranks", o->cfg_ranks,
                   "groups of ranks that compute a pass of guidance each: Flux.1 has one pass, 1")
      ->group(kRanks);
  command->footer(
      "A seed gives the same picture as diffusers with torch.Generator('cpu').\n"
      "Examples:\n"
      "  braid image -m FLUX.1-schnell -p 'a cat in a hat' -o cat.png\n"
      "  braid image -m FLUX.1-dev -p 'a cat in a hat' --size 1024x768 --seed 7 -n 4");
  command->callback([o] { run(*o); });
}

}  // namespace braid::app
