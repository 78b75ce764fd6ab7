#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>

#include "braid/engine/diffusion/pipeline_memory.h"
#include "braid/engine/diffusion/pipeline_parts.h"
#include "braid/io/media/png.h"
#include "braid/job_options.h"
#include "braid/progress.h"
#include "braid/sequence_options.h"

namespace braid::app {

// Command-line options for `braid image` and `braid video`; `what` is "image" or "video".
struct PictureOptions {
  explicit PictureOptions(std::string item) : what(std::move(item)) {}

  std::string what;
  std::string folder, random_weights;
  std::optional<std::string> prompt, file, negative, size;
  std::optional<int64_t> width, height, steps, text_tokens;
  std::optional<double> guidance;
  std::optional<uint64_t> seed;
  std::optional<std::string> seed_mode;
  int64_t count = 1;
  int64_t preview_every = 0;
  int quality = 95;
  std::string output, variant, dump;
  std::string device = "auto", dtype, text_encoder = "auto";
  int threads = 0;
  bool strict = false, vae_tiling = false;
  bool json = false;
  std::string sp, text_rows, machines, schedule = "sequence_parallel";
  int ranks = 0;
  std::optional<int> cfg_ranks;
  double link_gbps = 0, link_us = 0;
  DegreeOptions degrees;
  JobOptions job;

  void add_to(CLI::App& command);
  // Fails with kInvalidArgument, naming the option.
  void check() const;
  // Where components compute; `groups` are the config's cfg_ranks. Fails with kInvalidArgument,
  // naming the option.
  PipelineConfig config(int groups = 1) const;
  // Whether one generator draws the noise of all items, else a generator each.
  bool one_generator() const { return seeds() == "batch"; }
  std::string seeds() const { return seed_mode.value_or("each"); }
  uint64_t seed_of(uint64_t first, int64_t k) const {
    return one_generator() ? first : first + static_cast<uint64_t>(k);
  }
  // Width and height; the defaults without an option.
  std::pair<int64_t, int64_t> sides(int64_t default_width, int64_t default_height) const;
  std::string prompt_text() const;
  const std::string& model() const { return folder.empty() ? random_weights : folder; }
  // The file of item k: "a.mp4" alone, else "a-1.mp4", "a-2.mp4".
  std::filesystem::path output_of(int64_t k) const;
  // Of the picture of a step: "a-step-0004.png". Videos' are PNG.
  std::filesystem::path preview_of(int64_t k, int64_t step) const;
  // Writes a picture in the format of its name.
  void write_picture(const std::filesystem::path& path, const RgbImage& image,
                     const PngTexts& texts) const;

 private:
  bool given(const char* option) const { return command_->count(option) > 0; }
  // Fails with kInvalidArgument on options without an effect on `groups` groups of ranks, or on the
  // device.
  void check_ranks(int groups) const;
  void check_device(const DeviceSpec& device) const;
  // By --text-encoder. Fails as check() does.
  EncoderPlace wanted_encoders() const;
  // By --text-rows; none: auto.
  std::optional<TextRows> wanted_text_rows() const;

  const CLI::App* command_ = nullptr;
};

// "WxH", or one number for both.
std::pair<int64_t, int64_t> parse_size(const std::string& text);

// A line about how far a job is.
std::string progress_line(const PipelineProgress& progress, const PictureOptions& options,
                          int64_t steps, double ms_per_step);

// Prints how components share a device: on GPUs, and where they take turns.
void say_memory(const PipelineMemory& memory, const DeviceSpec& device, Progress& progress);

// Bytes on each GPU, or on the host.
nlohmann::ordered_json memory_report(const std::optional<PipelineMemory>& memory);

// How `auto` divides a step.
std::string choice_remark(const std::optional<SequenceMesh>& mesh, const std::string& schedule,
                          TextRows text);

// The model, ranks and times of a drawing.
nlohmann::ordered_json drawing_report(
    const PictureOptions& options, const PipelineConfig& config,
    const std::optional<SequenceMesh>& mesh, const PipelineTimings& timings,
    const std::vector<std::pair<std::string, int64_t>>& weight_bytes, double load_ms,
    const std::vector<double>& write_ms, int64_t step_bytes, int64_t decode_bytes);

}  // namespace braid::app
