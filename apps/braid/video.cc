#include <fmt/format.h>

#include <chrono>
#include <memory>
#include <random>

#include "braid/commands.h"
#include "braid/engine/diffusion/cogvideox_pipeline.h"
#include "braid/interrupt.h"
#include "braid/io/media/picture_file.h"
#include "braid/io/media/video_file.h"
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

struct VideoOptions : PictureOptions {
  VideoOptions() : PictureOptions("video") {}

  std::optional<int64_t> frames, fps;
  bool dynamic_guidance = false;
};

double ms_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

bool as_pictures(const VideoOptions& o) {
  return is_picture_name(o.output);
}

// Picture t of a video in "a.png": "a-0001.png".
std::filesystem::path picture_of(std::filesystem::path path, size_t t) {
  return path.replace_filename(
      fmt::format("{}-{:04}{}", path.stem().string(), t + 1, path.extension().string()));
}

void check(VideoOptions& o) {
  o.PictureOptions::check();
  if (o.output.empty()) o.output = has_video_codecs() ? "video.mp4" : "video.y4m";
  if (as_pictures(o)) {
    require_picture_format(picture_format(o.output));
  } else {
    require_video_format(video_format(o.output));
  }
  if (o.fps) require_between("--fps", *o.fps, 1, 240);
  if (o.cfg_ranks) require_between("--cfg-ranks", *o.cfg_ranks, 1, 2);
  for (int64_t k = 0; k < o.count; ++k) {
    require_writable("-o", as_pictures(o) ? picture_of(o.output_of(k), 0) : o.output_of(k));
  }
}

VideoRequest request_of(const VideoOptions& o, const CogVideoXPipeline::Defaults& otherwise) {
  const auto [width, height] = o.sides(otherwise.width, otherwise.height);
  VideoRequest r{.prompt = o.prompt_text(),
                 .negative = o.negative.value_or(""),
                 .width = width,
                 .height = height,
                 .frames = o.frames.value_or(otherwise.frames),
                 .steps = o.steps.value_or(otherwise.steps),
                 .guidance = o.guidance.value_or(otherwise.guidance),
                 .dynamic_guidance = o.dynamic_guidance,
                 .text_tokens = o.text_tokens.value_or(otherwise.text_tokens),
                 .seed = o.seed ? *o.seed : std::random_device()(),
                 .videos = o.count,
                 .one_generator = o.one_generator(),
                 .strict = o.strict,
                 .tiles = o.vae_tiling};
  require_utf8(r.negative, "the negative prompt");
  return r;
}

// What made a video, for the file itself.
std::string settings_of(const VideoOptions& o, const VideoRequest& r, int64_t k, int64_t fps,
                        bool tiled) {
  return json_text({{"prompt", r.prompt},
                    {"negative", r.negative},
                    {"model", std::filesystem::path(o.model()).filename().string()},
                    {"width", r.width},
                    {"height", r.height},
                    {"frames", r.frames},
                    {"fps", fps},
                    {"steps", r.steps},
                    {"guidance", r.guidance},
                    {"dynamic_guidance", r.dynamic_guidance},
                    {"seed", std::to_string(o.seed_of(r.seed, k))},
                    {"seed_mode", o.seeds()},
                    {"video", k},
                    {"videos", r.videos},
                    {"text_tokens", r.text_tokens},
                    {"vae_tiling", tiled}});
}

void write(const VideoOptions& o, int64_t k, const std::vector<RgbImage>& frames, int64_t fps,
           const std::string& settings) {
  const std::filesystem::path path = o.output_of(k);
  if (!as_pictures(o)) {
    const VideoFormat format = video_format(o.output);
    write_file(path.string(), encode_video(frames, format, {.fps = fps, .comment = settings}));
    return;
  }
  const PngTexts texts = {{"parameters", settings}, {"Software", version_line()}};
  for (size_t t = 0; t < frames.size(); ++t) {
    o.write_picture(picture_of(path, t), frames[t], texts);
  }
}

void run(VideoOptions o) {
  check(o);
  std::optional<LatentDump> dump;
  if (!o.dump.empty()) dump.emplace(o.dump);
  const bool two_passes = !o.guidance || *o.guidance > 1;
  PipelineConfig config = o.config(o.cfg_ranks.value_or(o.sp == "auto" && two_passes ? 0 : 1));
  config.frames = o.frames.value_or(0);
  config.passes = two_passes ? 2 : 1;
  const auto start = Clock::now();
  Progress progress;
  progress.announce("loading " + o.model());
  CogVideoXPipeline pipeline =
      o.folder.empty() ? CogVideoXPipeline(random_cogvideox(o.random_weights, config.dtype), config)
                       : CogVideoXPipeline(o.folder, config);
  const double load_ms = ms_since(start);
  progress.clear();
  VideoRequest request = request_of(o, pipeline.defaults());
  const int64_t fps = o.fps.value_or(pipeline.defaults().fps);
  if (o.negative && !o.negative->empty() && request.guidance <= 1) {
    print_remarks({"--negative is ignored: guidance is not over 1"});
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
    request.on_latents = [&](int64_t video, int64_t step, std::span<const float> latents) {
      dump->add(video, step, latents, pipeline.transformer().token_dim());
    };
  }
  request.preview_every = o.preview_every;
  request.on_preview = [&](int64_t k, int64_t step, const RgbImage& image) {
    o.write_picture(o.preview_of(k, step), image, {});
  };
  std::vector<double> write_ms;
  request.on_video = [&](int64_t k, const std::vector<RgbImage>& frames) {
    const auto begin = Clock::now();
    write(o, k, frames, fps, settings_of(o, request, k, fps, pipeline.tiled()));
    write_ms.push_back(ms_since(begin));
    progress.clear();
    if (!o.json) print(o.output_of(k).string() + "\n");
  };
  const VideoResult result = pipeline.generate(request);
  progress.clear();
  if (!pipeline.priced().empty()) {
    print_remarks(
        {fmt::format("{}, {} cfg ranks, passes {}",
                     choice_remark(pipeline.mesh(), pipeline.schedule(), pipeline.text_rows()),
                     pipeline.cfg_ranks(), result.passes)});
  }
  print_remarks(result.remarks);
  if (!result.complete) throw Interrupted();
  if (dump) dump->write();
  if (o.json) {
    Json report = {{"videos", Json::array()},
                   {"prompt", request.prompt},
                   {"negative", request.negative},
                   {"width", request.width},
                   {"height", request.height},
                   {"frames", request.frames},
                   {"fps", fps},
                   {"steps", request.steps},
                   {"guidance", request.guidance},
                   {"seed_mode", o.seeds()},
                   {"cfg_ranks", pipeline.cfg_ranks()},
                   {"passes", result.passes},
                   {"tokens", {{"t5", result.tokens}, {"text", request.text_tokens}}}};
    for (int64_t k = 0; k < o.count; ++k) {
      report["videos"].push_back(
          {{"file", o.output_of(k).string()}, {"seed", o.seed_of(request.seed, k)}});
    }
    report.update(drawing_report(o, config, pipeline.mesh(), result.timings,
                                 pipeline.weight_bytes(), load_ms, write_ms, result.step_bytes,
                                 result.decode_bytes));
    report.update({{"schedule", pipeline.schedule()},
                   {"text_rows", to_string(pipeline.text_rows())},
                   {"vae_tiling", pipeline.tiled()},
                   {"priced", pipeline.priced()},
                   {"memory", memory_report(result.memory)}});
    print(json_text(report) + "\n");
    return;
  }
  double steps_ms = 0;
  for (double ms : result.timings.step_ms) steps_ms += ms;
  fmt::print(stderr, "\nseed {}, {} x {}, {} frames, {} steps of {:.2f} s, in all {:.1f} s\n",
             request.seed, request.width, request.height, request.frames, request.steps,
             steps_ms / 1000 / static_cast<double>(result.timings.step_ms.size()),
             ms_since(start) / 1000);
}

}  // namespace

void add_video(CLI::App& app) {
  auto* command = app.add_subcommand("video", "Makes videos from a text (CogVideoX)");
  const auto o = std::make_shared<VideoOptions>();
  o->add_to(*command);
  command->add_option("--random-weights", o->random_weights,
                      "in place of -m: random weights of this shape, configs/cogvideox-2b.json, "
                      "and random numbers in place of the prompt");
  command->add_option("--negative,--negative-prompt", o->negative, "what not to show")
      ->type_name(kMayBeEmpty);
  command->add_option("--frames,--num-frames", o->frames,
                      "8 k + 1, of version 1.5 16 k + 1 (default: the model's)");
  command->add_option("--fps", o->fps, "frames a second (default 8, of version 1.5 16)");
  command->add_option("--steps,--num-inference-steps", o->steps,
                      "steps from noise to video (default 50)");
  command->add_option("--guidance,--guidance-scale,--cfg-scale", o->guidance,
                      "how closely the video follows the text (default 6; 1: a single pass)");
  command->add_flag("--dynamic-guidance,--use-dynamic-cfg", o->dynamic_guidance,
                    "guidance grows from 1 over the steps");
  command->add_option("--text-tokens,--max-sequence-length", o->text_tokens,
                      "tokens of text that the model sees (default 226)");
  command->add_option(
      "-o,--output", o->output,
      "the file, video.mp4: .mp4, .webm, .y4m (raw), or .png, .jpg, .webp for a file each frame");
  command
      ->add_option("--cfg-ranks", o->cfg_ranks,
                   "2: the two passes of guidance run at once, each on half of the ranks (default "
                   "1; with --sp auto the faster by simulation)")
      ->group(kRanks);
  command->footer(
      "A seed gives the same video as diffusers with torch.Generator('cpu').\n"
      "Examples:\n"
      "  braid video -m CogVideoX-2b -p 'a panda plays the guitar' -o panda.mp4\n"
      "  braid video -m CogVideoX-5b -p 'a panda' --frames 9 --seed 7 --sp ulysses --ranks 4");
  command->callback([o] { run(*o); });
}

}  // namespace braid::app
