#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "braid/engine/diffusion/flux_pipeline.h"
#include "braid/io/media/png.h"
#include "braid/sequence_options.h"

namespace braid::app {

// What `braid image` was asked for.
struct ImageOptions {
  std::string folder;
  std::optional<std::string> prompt, file, negative, size;
  std::optional<int64_t> width, height, steps, text_tokens;
  std::optional<double> guidance;
  std::optional<uint64_t> seed;
  std::string seed_mode = "each";
  int64_t images = 1;
  std::string output = "image.png";
  std::string from_png, variant, dump, random_weights;
  std::string device = "auto", dtype = "bf16", text_encoder = "cpu";
  int threads = 0;
  bool strict = false;
  bool json = false;
  std::string sp, machines, schedule = "sequence_parallel";
  int ranks = 0;
  double link_gbps = 0, link_us = 0;
  DegreeOptions degrees;
};

// The file of image k of n: "a.png" alone, else "a-1.png", "a-2.png".
std::filesystem::path output_of(const ImageOptions& o, int64_t k);
const std::string& model_of(const ImageOptions& o);
// What made a picture, for the file itself.
PngTexts settings_of(const ImageOptions& o, const ImageRequest& r, int64_t k);
std::string progress_line(const ImageProgress& p, const ImageRequest& r, double ms_per_step);

// What the command line measures around a pipeline.
struct ImageRun {
  double load_ms = 0;
  std::vector<double> write_ms;  // [images]
};
// What --json prints.
nlohmann::ordered_json report(const ImageOptions& o, const ImageRequest& r,
                              const ImageResult& result, const ImageRun& run,
                              const PipelineConfig& config, const FluxPipeline& pipeline);

}  // namespace braid::app
