#include "braid/picture_options.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <tuple>

#include "braid/backend/cpu/thread_pool.h"
#include "braid/engine/link_topology.h"
#include "braid/engine/parallel_choice.h"
#include "braid/engine/world.h"
#include "braid/io/media/picture_file.h"
#include "braid/io/text_file.h"
#include "braid/options.h"
#include "braid/schedule/strategies/registry.h"
#include "braid/text_io.h"
#include "braid/version.h"

namespace braid::app {

using Json = nlohmann::ordered_json;

void PictureOptions::add_to(CLI::App& command) {
  command_ = &command;
  command.add_option("-m,--model", folder, "the folder of a diffusers pipeline");
  command.add_option("-p,--prompt", prompt, "what to draw");
  command.add_option("-f,--file", file, "a file with the prompt");
  command.add_option("--size", size, "WIDTHxHEIGHT in pixels (default: the model's)");
  command.add_option("-W,--width", width, "the width alone");
  command.add_option("-H,--height", height, "the height alone");
  command.add_option("-s,--seed", seed, "of the noise (default: another one each time)");
  command.add_option("--seed-mode", seed_mode,
                     fmt::format("each: {} k of -n has seed + k; batch: one generator draws all, "
                                 "as diffusers does (default each)",
                                 what));
  command.add_option("-n,--" + what + "s,--num-" + what + "s-per-prompt", count,
                     "how many (default 1)");
  command.add_option("--variant", variant, "of the weight files: fp16");
  command.add_option("-t,--threads", threads, "threads of each rank (default: all cores)");
  command.add_option("--device", device,
                     "cpu, cuda, cuda:1, cuda:0,1 with --sp, or auto: GPUs if there are enough");
  command.add_option("--dtype", dtype,
                     "on a GPU: bf16 (default), f32, or f16 (the transformer; other parts stay in "
                     "bf16); a CPU computes in f32");
  command
      .add_option("--text-encoder", text_encoder,
                  "where the prompt is read with --device cuda: gpu, load (on the GPU, which "
                  "then frees the encoders), cpu, or auto: the first of these that fits the "
                  "memory")
      ->capture_default_str();
  command.add_option("--preview-every", preview_every,
                     "after every so many steps a picture of the latents, of videos the first "
                     "frame: NAME-step-0004.png");
  command.add_option("--quality", quality, "of JPEG and WebP files, 1 to 100")
      ->capture_default_str();
  command.add_option("--dump-latents", dump,
                     "a safetensors file for the latents before the first and after each step");
  command.add_flag("--vae-tiling", vae_tiling,
                   "decode in tiles that blend: less memory, not exact (by itself only where an "
                   "exact decoding does not fit)");
  command.add_flag("--strict", strict, "fail where a prompt is too long, in place of cutting it");
  command.add_flag("--json", json, "print one JSON object: files, seeds, timings, memory");
  command
      .add_option(
          "--sp", sp,
          fmt::format("ranks divide the tokens of text and {}: ring, ulysses, usp, tas, torus, or "
                      "auto: the fastest by simulation",
                      what))
      ->group(kRanks);
  command
      .add_option(
          "--text-rows", text_rows,
          "with --sp: text tokens in shares, split; whole on each rank, replicated; or auto: "
          "the faster by simulation (default: split, with --sp auto auto)")
      ->group(kRanks);
  command.add_option("--ranks", ranks, "with --sp: ranks (default: one for each GPU of --device)")
      ->group(kRanks);
  degrees.add_to(command, "with --sp: ");
  add_job_source(command, job);
  command
      .add_option("--machines", machines,
                  "with --sp: [RACKSx]MACHINESxDEVICES in place of --ranks; machines are emulated")
      ->group(kEmulation);
  command
      .add_option("--link-gbps", link_gbps,
                  "emulate links between machines (of one machine: between ranks on the CPU): "
                  "GB/s each way (0: the speed of memory)")
      ->group(kEmulation);
  command.add_option("--link-us", link_us, "their latency in microseconds")->group(kEmulation);
  command
      .add_option("--schedule", schedule,
                  "with --sp: a strategy's name, or auto: the fastest by simulation")
      ->capture_default_str()
      ->group(kSchedules);
}

void PictureOptions::check() const {
  require_one_process(job, what);
  if (folder.empty() == random_weights.empty()) {
    fail(ErrorCode::kInvalidArgument,
         "{} needs a model: -m FOLDER, or --random-weights FILE for measurements", what);
  }
  if (!dtype.empty() && dtype != "bf16" && dtype != "f16" && dtype != "f32") {
    fail(ErrorCode::kInvalidArgument, "--dtype is {}, wanted is bf16, f16 or f32", dtype);
  }
  wanted_encoders();
  if (seeds() != "each" && seeds() != "batch") {
    fail(ErrorCode::kInvalidArgument, "--seed-mode is {}, wanted is each or batch", seeds());
  }
  if (!prompt && !file && random_weights.empty()) {
    fail(ErrorCode::kInvalidArgument, "{} needs a prompt: -p TEXT or -f FILE", what);
  }
  if (prompt && file) {
    fail(ErrorCode::kInvalidArgument, "-p and -f both give the prompt: wanted one of them");
  }
  if (size && (width || height)) {
    fail(ErrorCode::kInvalidArgument, "--size and -W or -H say the same: give one of them");
  }
  require_between("--threads", threads, 0, cpu::ThreadPool::kMaxThreads);
  require_between("-n", count, 1, 100000);
  require_between("--preview-every", preview_every, 0, 1000000);
  require_between("--quality", quality, 1, 100);
}

void PictureOptions::check_ranks(int groups) const {
  const bool passes = schedule == "cfg_passes";
  if (!sp.empty()) {
    wanted_text_rows();
    std::vector<std::string> names = {"sequence_parallel", "overlap", "sequential", "auto"};
    if (what == "video") names.emplace_back("cfg_passes");
    if (!is_strategy_file(schedule) && std::ranges::count(names, schedule) == 0) {
      fail(ErrorCode::kInvalidArgument,
           "--schedule '{}' does nothing for steps of {}s; wanted is {} or a .so", schedule, what,
           fmt::join(names, ", "));
    }
    if (passes && groups == 2) {
      fail(ErrorCode::kInvalidArgument,
           "--schedule cfg_passes runs two passes on the same ranks, --cfg-ranks 2 on two halves: "
           "wanted is one of them");
    }
    return;
  }
  for (const char* option : {"--ranks", "--machines", "--schedule", "--text-rows", "--link-gbps",
                             "--link-us", "--torus-degree", "--ulysses-degree", "--ring-degree"}) {
    const std::string_view name = option;
    if (!given(option) || (name == "--ranks" && (ranks == 0 || ranks == groups))) continue;
    if (name.starts_with("--link") && groups == 2) continue;  // ranks divide the decoding
    fail(ErrorCode::kInvalidArgument,
         "{} goes with --sp, which names how ranks divide the tokens of {}s", name, what);
  }
}

EncoderPlace PictureOptions::wanted_encoders() const {
  using enum EncoderPlace;
  for (const EncoderPlace place : {automatic, gpu, load, cpu}) {
    if (text_encoder == to_string(place)) return place;
  }
  fail(ErrorCode::kInvalidArgument, "--text-encoder is {}, wanted is auto, gpu, load or cpu",
       text_encoder);
}

std::optional<TextRows> PictureOptions::wanted_text_rows() const {
  const bool priced = sp == "auto" || schedule == "auto";
  const std::string rows = !text_rows.empty() ? text_rows : sp == "auto" ? "auto" : "split";
  for (const TextRows text : kTextRows) {
    if (rows == to_string(text)) return text;
  }
  if (rows != "auto") {
    fail(ErrorCode::kInvalidArgument, "--text-rows is {}, wanted is split, replicated or auto",
         rows);
  }
  if (!priced) {
    fail(ErrorCode::kInvalidArgument,
         "--text-rows auto prices steps: wanted is --sp auto or --schedule auto beside it");
  }
  return {};
}

void PictureOptions::check_device(const DeviceSpec& chosen) const {
  if (chosen.cuda) return;
  if (!dtype.empty() && dtype != "f32") {
    fail(ErrorCode::kInvalidArgument,
         "--dtype {} is a GPU's: on the CPU, chosen here, wanted is f32, or no --dtype", dtype);
  }
  if (const EncoderPlace place = wanted_encoders();
      place == EncoderPlace::gpu || place == EncoderPlace::load) {
    fail(ErrorCode::kInvalidArgument,
         "--text-encoder {} goes with --device cuda: all work is on the CPU here", text_encoder);
  }
}

PipelineConfig PictureOptions::config(int groups) const {
  const bool divided = !sp.empty();
  check_ranks(groups);
  SequenceRequest sequence{.mode = sp, .machines = machines, .schedule_named = given("--schedule")};
  if (divided) sequence.degrees = degrees.request();
  if (divided && ranks != 0) {
    require_between("--ranks", ranks, 1, 1024);
    sequence.ranks = ranks;
  }
  EngineConfig wanted{.threads = threads, .schedule = schedule};
  if (!divided) wanted.tp = std::max(1, groups);
  const EngineConfig engine = choose_parallel({.device = device,
                                               .engine = wanted,
                                               .link_gbps = link_gbps,
                                               .link_us = link_us,
                                               .sequence = sequence},
                                              terminal_notes())
                                  .engine;
  check_device(engine.device);
  PipelineConfig config{
      .threads = threads_of(engine),
      .cfg_ranks = groups,
      .schedule = engine.schedule,
      .profile = engine.profile,
      .links = engine.links,
      .text_tokens = text_tokens.value_or(0),
      .variant = variant,
      .device = engine.device,
      .dtype = dtype.empty() ? usual_dtype(engine.device) : parse_dtype(dtype).value(),
      .encoders = wanted_encoders()};
  std::tie(config.width, config.height) = sides(0, 0);
  if (engine.sp) {
    config.sp = engine.sp->mode;
    config.choose_sp = !config.sp;
    config.degrees = engine.sp->degrees;
    config.text = wanted_text_rows();
    config.topology = topology_of(engine.links, engine.tp);
  }
  return config;
}

std::pair<int64_t, int64_t> PictureOptions::sides(int64_t default_width,
                                                  int64_t default_height) const {
  if (size) return parse_size(*size);
  return {width.value_or(default_width), height.value_or(default_height)};
}

std::string PictureOptions::prompt_text() const {
  std::string text = prompt ? *prompt : file ? read_file(*file) : "";
  require_utf8(text, "the prompt");
  return text;
}

std::filesystem::path PictureOptions::preview_of(int64_t k, int64_t step) const {
  std::filesystem::path path = output_of(k);
  const std::string end = is_picture_name(path.string()) ? path.extension().string() : ".png";
  return path.replace_filename(fmt::format("{}-step-{:04}{}", path.stem().string(), step, end));
}

void PictureOptions::write_picture(const std::filesystem::path& path, const RgbImage& image,
                                   const PngTexts& texts) const {
  write_file(path.string(), encode_picture(image, picture_format(path.string()),
                                           {.quality = quality, .texts = texts}));
}

std::filesystem::path PictureOptions::output_of(int64_t k) const {
  std::filesystem::path path(output);
  if (count == 1) return path;
  return path.replace_filename(
      fmt::format("{}-{}{}", path.stem().string(), k + 1, path.extension().string()));
}

std::pair<int64_t, int64_t> parse_size(const std::string& text) {
  std::array<int64_t, 2> sides{};
  const char* at = text.data();
  const char* const end = at + text.size();
  const auto read = [&](int64_t& side) {
    const auto result = std::from_chars(at, end, side);
    at = result.ptr;
    return result.ec == std::errc();
  };
  bool good = read(sides[0]);
  if (good && at == end) return {sides[0], sides[0]};
  good = good && (*at == 'x' || *at == 'X') && (++at, read(sides[1])) && at == end;
  if (!good) {
    fail(ErrorCode::kInvalidArgument, "--size is '{}', wanted is WIDTHxHEIGHT: 1024x768", text);
  }
  return {sides[0], sides[1]};
}

std::string progress_line(const PipelineProgress& p, const PictureOptions& o, int64_t steps,
                          double ms_per_step) {
  const std::string item =
      o.count == 1 ? "" : fmt::format("{} {} of {}: ", o.what, p.item + 1, o.count);
  switch (p.stage) {
    case PipelineProgress::Stage::encode:
      return "reading the prompt";
    case PipelineProgress::Stage::prepare:
      return "preparing the steps";
    case PipelineProgress::Stage::decode:
      return item + "decoding";
    case PipelineProgress::Stage::step:
      break;
  }
  std::string line = fmt::format("{}step {} of {}", item, p.step + 1, steps);
  if (ms_per_step > 0) {
    const double left = ms_per_step * static_cast<double>(steps - p.step) / 1000;
    line += fmt::format(", {:.1f} s each, {:.0f} s left", ms_per_step / 1000, left);
  }
  return line;
}

void say_memory(const PipelineMemory& memory, const DeviceSpec& device, Progress& progress) {
  if (!device.cuda && memory.together) return;
  progress.clear();
  print_remarks({"memory: " + to_string(memory)});
}

Json memory_report(const std::optional<PipelineMemory>& memory) {
  if (!memory) return nullptr;
  const EncoderChoice encoders =
      memory->encoders.value_or(EncoderChoice{.why = "random numbers are in the prompt's place"});
  Json components = Json::object();
  for (const ComponentMemory& c : memory->components) {
    components[c.name] = {{"weights", c.weights}, {"values", c.values}};
  }
  return {{"components", std::move(components)},
          {"together", memory->together},
          {"most", memory->most},
          {"free", memory->free},
          {"text_encoder", memory->encoders ? Json(to_string(encoders.place)) : Json(nullptr)},
          {"text_encoder_why", encoders.why},
          {"options", memory->options}};
}

std::string choice_remark(const std::optional<SequenceMesh>& mesh, const std::string& schedule,
                          TextRows text) {
  if (!mesh) return "auto: one rank";
  return fmt::format("auto: {}, {}, {}, text {}", to_string(mesh->mode), to_string(mesh->degrees),
                     schedule, to_string(text));
}

Json drawing_report(const PictureOptions& o, const PipelineConfig& config,
                    const std::optional<SequenceMesh>& mesh, const PipelineTimings& timings,
                    const std::vector<std::pair<std::string, int64_t>>& weight_bytes,
                    double load_ms, const std::vector<double>& write_ms, int64_t step_bytes,
                    int64_t decode_bytes) {
  Json weights = Json::object();
  for (const auto& [component, bytes] : weight_bytes) weights[component] = bytes;
  return {
      {"timings",
       {{"load_ms", load_ms},
        {"encoders_ms", timings.encoders_ms},
        {"encode_ms", timings.encode_ms},
        {"prepare_ms", timings.prepare_ms},
        {"step_ms", timings.step_ms},
        {"decode_ms", timings.decode_ms},
        {"write_ms", write_ms}}},
      {"sent_bytes", {{"step", step_bytes}, {"decode", decode_bytes}}},
      {"model", o.model()},
      {"device", config.device.cuda ? gpu_name(config.device.first_gpu()) : "cpu"},
      {"dtype", name(config.dtype)},
      {"weight_bytes", std::move(weights)},
      {"ranks", config.ranks()},
      {"sp", mesh ? fmt::format("{}, {}", to_string(mesh->mode), to_string(mesh->degrees)) : ""},
      {"threads", config.threads},
      {"version", version_line()},
      {"peak_rss_mb", peak_rss_mb()}};
}

}  // namespace braid::app
