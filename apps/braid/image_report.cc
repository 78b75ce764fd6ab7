#include "braid/image_report.h"

#include <fmt/format.h>

#include "braid/engine/world.h"
#include "braid/io/json_text.h"
#include "braid/text_io.h"
#include "braid/version.h"

namespace braid::app {
namespace {

using Json = nlohmann::ordered_json;

uint64_t seed_of(const ImageRequest& r, int64_t image) {
  return r.one_generator ? r.seed : r.seed + static_cast<uint64_t>(image);
}

// Bytes on the GPU that needs most; null on CPUs.
Json memory_of(const ImageResult& result) {
  if (!result.memory) return nullptr;
  Json components = Json::object();
  for (const ComponentMemory& c : result.memory->components) {
    components[c.name] = {{"weights", c.weights}, {"values", c.values}};
  }
  return {{"components", std::move(components)},
          {"together", result.memory->together},
          {"most", result.memory->most},
          {"free", result.memory->free}};
}

}  // namespace

std::filesystem::path output_of(const ImageOptions& o, int64_t k) {
  std::filesystem::path path(o.output);
  if (o.images == 1) return path;
  return path.replace_filename(
      fmt::format("{}-{}{}", path.stem().string(), k + 1, path.extension().string()));
}

const std::string& model_of(const ImageOptions& o) {
  return o.folder.empty() ? o.random_weights : o.folder;
}

PngTexts settings_of(const ImageOptions& o, const ImageRequest& r, int64_t k) {
  const Json settings = {{"prompt", r.prompt},
                         {"model", std::filesystem::path(model_of(o)).filename().string()},
                         {"width", r.width},
                         {"height", r.height},
                         {"steps", r.steps},
                         {"guidance", r.guidance},
                         {"seed", std::to_string(seed_of(r, k))},
                         {"seed_mode", o.seed_mode},
                         {"image", k},
                         {"text_tokens", r.text_tokens}};
  return {{"parameters", json_text(settings)}, {"Software", version_line()}};
}

std::string progress_line(const ImageProgress& p, const ImageRequest& r, double ms_per_step) {
  const std::string image =
      r.images == 1 ? "" : fmt::format("image {} of {}: ", p.image + 1, r.images);
  switch (p.stage) {
    case ImageProgress::Stage::encode:
      return "reading the prompt";
    case ImageProgress::Stage::prepare:
      return "preparing the steps";
    case ImageProgress::Stage::decode:
      return image + "decoding";
    case ImageProgress::Stage::step:
      break;
  }
  std::string line = fmt::format("{}step {} of {}", image, p.step + 1, r.steps);
  if (ms_per_step > 0) {
    const double left = ms_per_step * static_cast<double>(r.steps - p.step) / 1000;
    line += fmt::format(", {:.1f} s each, {:.0f} s left", ms_per_step / 1000, left);
  }
  return line;
}

Json report(const ImageOptions& o, const ImageRequest& r, const ImageResult& result,
            const ImageRun& run, const PipelineConfig& config, const FluxPipeline& pipeline) {
  Json images = Json::array(), weights = Json::object();
  for (const auto& [component, bytes] : pipeline.weight_bytes()) weights[component] = bytes;
  for (int64_t k = 0; k < r.images; ++k) {
    images.push_back({{"file", output_of(o, k).string()}, {"seed", seed_of(r, k)}});
  }
  return {
      {"images", std::move(images)},
      {"prompt", r.prompt},
      {"width", r.width},
      {"height", r.height},
      {"steps", r.steps},
      {"guidance", r.guidance},
      {"seed_mode", o.seed_mode},
      {"tokens", {{"clip", result.clip_tokens}, {"t5", result.t5_tokens}, {"text", r.text_tokens}}},
      {"timings",
       {{"load_ms", run.load_ms},
        {"encode_ms", result.timings.encode_ms},
        {"prepare_ms", result.timings.prepare_ms},
        {"step_ms", result.timings.step_ms},
        {"decode_ms", result.timings.decode_ms},
        {"write_ms", run.write_ms}}},
      {"model", model_of(o)},
      {"device", config.device.cuda ? gpu_name(config.device.first_gpu()) : "cpu"},
      {"dtype", config.device.cuda ? o.dtype : "f32"},
      {"text_encoder", config.device.cuda ? o.text_encoder : "cpu"},
      {"weight_bytes", std::move(weights)},
      {"memory", memory_of(result)},
      {"ranks", config.ranks()},
      {"sp", pipeline.mesh() ? fmt::format("{}, {}", to_string(pipeline.mesh()->mode),
                                           to_string(pipeline.mesh()->degrees))
                             : ""},
      {"schedule", pipeline.schedule()},
      {"priced", pipeline.priced()},
      {"threads", config.threads},
      {"version", version_line()},
      {"peak_rss_mb", peak_rss_mb()}};
}

}  // namespace braid::app
