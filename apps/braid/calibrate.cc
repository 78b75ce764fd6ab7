#include <unistd.h>

#include <cstdio>
#include <memory>

#include "braid/base/error.h"
#include "braid/calibration.h"
#include "braid/commands.h"
#include "braid/engine/calibrate.h"

namespace braid::app {
namespace {

struct CalibrateOptions {
  std::string out;
  int threads = 0;
};

}  // namespace

Profile calibrate_and_save(int threads, std::string path) {
  CalibrateConfig config{.threads = threads};
  const bool terminal = isatty(fileno(stderr)) != 0;
  if (terminal) {
    config.progress = [](const std::string& what) {
      std::fprintf(stderr, "\r\033[Kmeasuring %s", what.c_str());
    };
  }
  Profile profile = calibrate_cpu(config);
  if (terminal) std::fprintf(stderr, "\r\033[K");
  if (path.empty()) {
    const std::filesystem::path folder = profile_cache_folder();
    if (folder.empty()) {
      fail(ErrorCode::kResource,
           "neither XDG_CACHE_HOME nor HOME is set: say where to write with -o");
    }
    path = (folder / (profile.name + ".json")).string();
  }
  save_profile(profile, path);
  std::fprintf(stderr, "measured this machine: %s\n", path.c_str());
  return profile;
}

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
  command->callback([options] { calibrate_and_save(options->threads, options->out); });
}

}  // namespace braid::app
