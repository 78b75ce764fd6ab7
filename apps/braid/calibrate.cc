#include <cstdio>
#include <filesystem>
#include <memory>

#include "braid/commands.h"
#include "braid/engine/profile_choice.h"
#include "braid/options.h"
#include "braid/text_io.h"

namespace braid::app {
namespace {

struct CalibrateOptions {
  std::string out;
  int threads = 0;
};

void calibrate(const CalibrateOptions& options) {
  std::filesystem::path path = options.out;
  if (options.out.empty()) {
    path = profile_cache_file(options.threads);
    std::error_code ignored;  // an unwritable file reports itself later
    std::filesystem::create_directories(path.parent_path(), ignored);
  }
  require_writable("the profile", path);
  save_profile(measure_profile(options.threads, terminal_notes()), path);
  std::fprintf(stderr, "measured this machine: %s\n", path.c_str());
}

}  // namespace

void add_calibrate(CLI::App& app) {
  auto* command = app.add_subcommand(
      "calibrate", "Measures this machine, for the simulator and for --schedule auto");
  const auto options = std::make_shared<CalibrateOptions>();
  command->add_option("-o,--output", options->out,
                      "file to write (default: cpu-THREADS.json in the cache folder)");
  command->add_option("--threads", options->threads, "threads of each rank (0: all cores)")
      ->capture_default_str();
  command->footer(
      "Says where it wrote. Let nothing else run meanwhile.\n"
      "Examples:\n  braid calibrate\n  braid calibrate --threads 1 -o machine.json");
  command->callback([options] { calibrate(*options); });
}

}  // namespace braid::app
