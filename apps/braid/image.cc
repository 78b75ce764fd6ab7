#include <fmt/format.h>

#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>
#include <random>

#include "braid/backend/cpu/thread_pool.h"
#include "braid/commands.h"
#include "braid/engine/diffusion/flux_pipeline.h"
#include "braid/engine/link_topology.h"
#include "braid/image_report.h"
#include "braid/interrupt.h"
#include "braid/io/json_text.h"
#include "braid/io/media/png.h"
#include "braid/io/text_file.h"
#include "braid/latent_dump.h"
#include "braid/options.h"
#include "braid/picture_options.h"
#include "braid/progress.h"
#include "braid/text_io.h"
#include "braid/version.h"

namespace braid::app {
namespace {

using Clock = std::chrono::steady_clock;

double ms_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

void check(const ImageOptions& o) {
  if (o.folder.empty() == o.random_weights.empty()) {
    fail(ErrorCode::kInvalidArgument,
         "image needs a model: -m FOLDER, or --random-weights FILE for measurements");
  }
  if (o.dtype != "bf16" && o.dtype != "f32") {
    fail(ErrorCode::kInvalidArgument, "--dtype is {}, wanted is bf16 or f32", o.dtype);
  }
  if (o.text_encoder != "gpu" && o.text_encoder != "cpu") {
    fail(ErrorCode::kInvalidArgument, "--text-encoder is {}, wanted is gpu or cpu", o.text_encoder);
  }
  if (!o.prompt && !o.file && o.random_weights.empty()) {
    fail(ErrorCode::kInvalidArgument, "image needs a prompt: -p TEXT, -f FILE or --from-png FILE");
  }
  if (o.prompt && o.file) {
    fail(ErrorCode::kInvalidArgument, "-p and -f both give the prompt: wanted one of them");
  }
  if (o.size && (o.width || o.height)) {
    fail(ErrorCode::kInvalidArgument, "--size and -W or -H say the same: give one of them");
  }
  if (std::filesystem::path(o.output).extension() != ".png") {
    fail(ErrorCode::kInvalidArgument, "-o is {}: a name that ends in .png is wanted", o.output);
  }
  if (o.seed_mode != "each" && o.seed_mode != "batch") {
    fail(ErrorCode::kInvalidArgument, "--seed-mode is {}, wanted is each or batch", o.seed_mode);
  }
  require_between("--threads", o.threads, 0, cpu::ThreadPool::kMaxThreads);
  require_between("-n", o.images, 1, 100000);
}

// What --from-png's picture was made with, where no option says otherwise.
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
    if (!o.seed) o.seed = std::stoull(settings.get_or<std::string>("seed", "0"));
    return;
  }
  fail(ErrorCode::kInvalidArgument, "{}: no picture of braid image: it holds no settings",
       o.from_png);
}

// Devices, ranks and links as other commands choose them.
EngineConfig ranks_of(const ImageOptions& o) {
  if (o.sp.empty() && (o.ranks != 0 || !o.machines.empty())) {
    fail(ErrorCode::kInvalidArgument, "{} goes with --sp, which names how ranks divide a picture",
         o.ranks != 0 ? "--ranks" : "--machines");
  }
  SequenceRequest sequence{.mode = o.sp, .machines = o.machines, .schedule_named = true};
  if (!o.sp.empty()) sequence.degrees = o.degrees.request();
  if (o.ranks != 0) {
    require_between("--ranks", o.ranks, 1, 1024);
    sequence.ranks = o.ranks;
  }
  return choose_parallel({.device = o.device,
                          .engine = {.threads = o.threads, .schedule = o.schedule},
                          .link_gbps = o.link_gbps,
                          .link_us = o.link_us,
                          .sequence = sequence},
                         terminal_notes())
      .engine;
}

PipelineConfig config_of(const ImageOptions& o) {
  const EngineConfig engine = ranks_of(o);
  PipelineConfig config{.threads = threads_of(engine),
                        .schedule = engine.schedule,
                        .profile = engine.profile,
                        .links = engine.links,
                        .width = o.width.value_or(0),
                        .height = o.height.value_or(0),
                        .text_tokens = o.text_tokens.value_or(0),
                        .variant = o.variant,
                        .device = engine.device,
                        .dtype = o.dtype == "f32" ? DType::f32 : DType::bf16,
                        .encode_on_cpu = o.text_encoder == "cpu"};
  if (engine.sp) {
    config.sp = engine.sp->mode;
    config.choose_sp = !config.sp;
    config.degrees = engine.sp->degrees;
    config.topology = topology_of(engine.links, engine.tp);
  }
  if (o.size) std::tie(config.width, config.height) = parse_size(*o.size);
  return config;
}

ImageRequest request_of(const ImageOptions& o, const FluxPipeline& pipeline) {
  const FluxPipeline::Defaults otherwise = pipeline.defaults();
  ImageRequest r{.prompt = o.prompt ? *o.prompt
                           : o.file ? read_file(*o.file)
                                    : "",
                 .width = o.width.value_or(otherwise.size),
                 .height = o.height.value_or(otherwise.size),
                 .steps = o.steps.value_or(otherwise.steps),
                 .guidance = o.guidance.value_or(otherwise.guidance),
                 .text_tokens = o.text_tokens.value_or(otherwise.text_tokens),
                 .seed = o.seed ? *o.seed : std::random_device()(),
                 .images = o.images,
                 .one_generator = o.seed_mode == "batch"};
  if (o.size) std::tie(r.width, r.height) = parse_size(*o.size);
  require_utf8(r.prompt, "the prompt");
  return r;
}

void run(ImageOptions o) {
  if (!o.from_png.empty()) take_settings(o);
  check(o);
  for (int64_t k = 0; k < o.images; ++k) require_writable("-o", output_of(o, k));
  std::optional<LatentDump> dump;
  if (!o.dump.empty()) dump.emplace(o.dump);
  const PipelineConfig config = config_of(o);
  const auto start = Clock::now();
  Progress progress;
  progress.announce("loading " + model_of(o));
  FluxPipeline pipeline = o.folder.empty()
                              ? FluxPipeline(random_flux(o.random_weights, config.dtype), config)
                              : FluxPipeline(o.folder, config);
  ImageRun measured{.load_ms = ms_since(start)};
  progress.clear();
  ImageRequest request = request_of(o, pipeline);
  if (o.negative) {
    print_remarks({"--negative is ignored: Flux.1 takes no negative prompt"});
  }
  if (o.guidance && o.from_png.empty() && !pipeline.transformer().guidance) {
    print_remarks({"--guidance is ignored: this model takes no guidance scale"});
  }
  Interrupt interrupt;
  auto step_began = Clock::now();
  double ms_per_step = 0;
  request.on_progress = [&](const ImageProgress& p) {
    if (p.step > 0) ms_per_step = ms_since(step_began);
    step_began = Clock::now();
    progress.show(progress_line(p, request, ms_per_step));
    return !interrupt.asked();
  };
  if (dump) {
    request.on_latents = [&](int64_t image, int64_t step, std::span<const float> latents) {
      dump->add(image, step, latents, pipeline.transformer().in_channels);
    };
  }
  request.strict = o.strict;
  request.on_image = [&](int64_t k, const RgbImage& image) {
    const auto begin = Clock::now();
    const std::string path = output_of(o, k).string();
    write_file(path, encode_png(image, settings_of(o, request, k)));
    measured.write_ms.push_back(ms_since(begin));
    progress.clear();
    if (!o.json) print(path + "\n");
  };
  const ImageResult result = pipeline.generate(request);
  progress.clear();
  if (!pipeline.priced().empty()) {
    print_remarks({fmt::format("auto: {}, {}, {}", to_string(pipeline.mesh()->mode),
                               to_string(pipeline.mesh()->degrees), pipeline.schedule())});
  }
  print_remarks(result.remarks);
  if (!result.complete) throw Interrupted();
  if (dump) dump->write();
  if (o.json) {
    print(json_text(report(o, request, result, measured, config, pipeline)) + "\n");
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
  command->add_option("-m,--model", o->folder, "the folder of a diffusers pipeline");
  command->add_option("--random-weights", o->random_weights,
                      "in place of -m: random weights of this shape, configs/flux-1-dev.json, and "
                      "random numbers in place of the prompt");
  command->add_option("-p,--prompt", o->prompt, "what to draw");
  command->add_option("-f,--file", o->file, "a file with the prompt");
  command->add_option("--negative,--negative-prompt", o->negative,
                      "what not to draw; Flux.1 ignores it");
  command->add_option("--size", o->size,
                      "WIDTHxHEIGHT in pixels (default: the model's, 1024x1024)");
  command->add_option("-W,--width", o->width, "the width alone");
  command->add_option("-H,--height", o->height, "the height alone");
  command->add_option("--steps,--num-inference-steps", o->steps,
                      "steps from noise to picture (default 28, without a guidance input 4)");
  command->add_option("--guidance,--guidance-scale,--cfg-scale", o->guidance,
                      "how closely the picture follows the text (default 3.5)");
  command->add_option("-s,--seed", o->seed, "of the noise (default: another one each time)");
  command->add_option("--seed-mode", o->seed_mode,
                      "each: image k of -n has seed + k; batch: one generator draws all, as "
                      "diffusers does (default each)");
  command->add_option("-n,--images,--num-images-per-prompt", o->images, "how many (default 1)");
  command->add_option("-o,--output", o->output,
                      "the file, image.png; with -n 3 image-1.png to image-3.png");
  command->add_option("--text-tokens,--max-sequence-length", o->text_tokens,
                      "tokens of text that the model sees (default 512, without guidance 256)");
  command->add_option("--variant", o->variant, "of the weight files: fp16");
  command->add_option("-t,--threads", o->threads, "threads of each rank (default: all cores)");
  command->add_option("--device", o->device,
                      "cpu, cuda, cuda:1, cuda:0,1 with --sp, or auto: GPUs if there are enough");
  command->add_option("--dtype", o->dtype, "of weights and activations on a GPU: bf16 or f32");
  command->add_option("--text-encoder", o->text_encoder,
                      "where the prompt is read with --device cuda: cpu (default) or gpu");
  command->add_option("--dump-latents", o->dump,
                      "a safetensors file for the latents before the first and after each step");
  command->add_option("--from-png", o->from_png,
                      "a picture of this program: its prompt, size, steps, guidance and seed");
  command->add_flag("--strict", o->strict,
                    "fail where a prompt is too long, in place of cutting it");
  command->add_flag("--json", o->json, "print one JSON object: files, seeds, timings, memory");
  command
      ->add_option(
          "--sp", o->sp,
          "ranks divide the tokens of text and picture: ring, ulysses, usp, tas, torus, or "
          "auto: the fastest by simulation")
      ->group(kRanks);
  command
      ->add_option("--ranks", o->ranks, "with --sp: ranks (default: one for each GPU of --device)")
      ->group(kRanks);
  o->degrees.add_to(*command, "with --sp: ");
  command
      ->add_option("--machines", o->machines,
                   "with --sp: MACHINESxDEVICES in place of --ranks; machines are emulated")
      ->group(kEmulation);
  command
      ->add_option("--link-gbps", o->link_gbps,
                   "emulate links between machines (of one machine: between ranks on the CPU): "
                   "GB/s each way (0: the speed of memory)")
      ->group(kEmulation);
  command->add_option("--link-us", o->link_us, "their latency in microseconds")->group(kEmulation);
  command
      ->add_option("--schedule", o->schedule,
                   "with --sp: a strategy's name, or auto: the fastest by simulation")
      ->capture_default_str()
      ->group(kSchedules);
  command->footer(
      "A seed gives the same picture as diffusers with torch.Generator('cpu').\n"
      "Examples:\n"
      "  braid image -m FLUX.1-schnell -p 'a cat in a hat' -o cat.png\n"
      "  braid image -m FLUX.1-dev -p 'a cat in a hat' --size 1024x768 --seed 7 -n 4");
  command->callback([o] { run(*o); });
}

}  // namespace braid::app
