#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <memory>

#include "braid/backend/cpu/thread_pool.h"
#include "braid/base/error.h"
#include "braid/calibration.h"
#include "braid/commands.h"
#include "braid/engine/calibrate.h"
#include "braid/text_io.h"

namespace braid::app {
namespace {

struct CalibrateOptions {
  std::string out;
  int threads = 0;
};

Profile measure(int threads) {
  CalibrateConfig config{.threads = threads};
  const bool terminal = isatty(fileno(stderr)) != 0;
  if (terminal) {
    config.progress = [](const std::string& what) {
      std::fprintf(stderr, "\r\033[Kmeasuring %s", what.c_str());
    };
  }
  Profile profile = calibrate_cpu(config);
  if (terminal) std::fprintf(stderr, "\r\033[K");
  return profile;
}

void save(const Profile& profile, const std::filesystem::path& path) {
  save_profile(profile, path);
  std::fprintf(stderr, "measured this machine: %s\n", path.c_str());
}

std::filesystem::path cache_file(int threads) {
  const std::filesystem::path folder = profile_cache_folder();
  if (folder.empty()) {
    fail(ErrorCode::kResource,
         "neither XDG_CACHE_HOME nor HOME says where to keep a profile; `braid calibrate -o` does");
  }
  return folder / (cpu_profile_name(threads > 0 ? threads : cpu::usable_cores()) + ".json");
}

void calibrate(const CalibrateOptions& options) {
  std::filesystem::path path = options.out;
  if (options.out.empty()) {
    path = cache_file(options.threads);
    std::error_code ignored;  // what cannot be written says so
    std::filesystem::create_directories(path.parent_path(), ignored);
  }
  require_writable("the profile", path);
  save(measure(options.threads), path);
}

}  // namespace

Profile calibrate_for_later(int threads) {
  std::fprintf(stderr, "no profile of this machine: measuring it, some ten seconds\n");
  Profile profile = measure(threads);
  try {
    save(profile, cache_file(threads));
  } catch (const Error& error) {  // it serves this run
    std::fprintf(stderr, "braid: this machine will be measured again: %s\n", error.what());
  }
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
  command->callback([options] { calibrate(*options); });
}

}  // namespace braid::app
