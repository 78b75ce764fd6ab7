#include "braid/engine/profile_choice.h"

#include <cctype>

#include "braid/backend/cpu/thread_pool.h"
#include "braid/engine/calibrate.h"
#include "braid/engine/world.h"
#include "braid/schedule/strategies/registry.h"

namespace braid {
namespace {

void say(const Notes& notes, const std::string& line) {
  if (notes.say) notes.say(line);
}

// Measured now, and kept in the cache folder or not.
Profile measure_for_later(int threads, const Notes& notes) {
  say(notes, "no profile of this machine: measuring it, some ten seconds");
  Profile profile = measure_profile(threads, notes);
  try {
    const std::filesystem::path path = profile_cache_file(threads);
    std::error_code ignored;  // save_profile reports failed writes
    std::filesystem::create_directories(path.parent_path(), ignored);
    save_profile(profile, path);
    say(notes, fmt::format("measured this machine: {}", path.string()));
  } catch (const Error& error) {  // it serves this run
    say(notes, fmt::format("this machine will be measured again: {}", error.what()));
  }
  return profile;
}

// A GPU's profile comes with Braid: `braid calibrate` measures the CPU.
std::optional<Profile> gpu_profile(const std::string& gpu) {
  std::string words = " ";  // an A1000 is no A100
  for (unsigned char c : gpu) words += std::isalnum(c) ? static_cast<char>(std::tolower(c)) : ' ';
  words += ' ';
  for (std::string_view name : builtin_profile_names()) {
    if (words.find(fmt::format(" {} ", name)) != std::string::npos) {
      return load_profile(std::string(name));
    }
  }
  return {};
}

void add_profile(EngineConfig& engine, const Notes& notes) {
  if (!engine.device.cuda) {
    const int threads = threads_of(engine);
    engine.profile = find_profile(cpu_profile_name(threads));
    if (!engine.profile) engine.profile = measure_for_later(threads, notes);
    return;
  }
  const std::string gpu = gpu_name(engine.device.first_gpu());
  engine.profile = gpu_profile(gpu);
  if (engine.profile) return;
  const std::string why = fmt::format("no profile of '{}' to price with; there are {}", gpu,
                                      fmt::join(builtin_profile_names(), ", "));
  if (engine.sp && !engine.sp->mode) fail(ErrorCode::kUnsupported, "--sp auto: {}", why);
  engine.schedule = engine.sp ? "sequence_parallel" : "sequential";
  say(notes, fmt::format("--schedule auto is {}: {}", engine.schedule, why));
}

}  // namespace

void choose_profile(EngineConfig& engine, const Notes& notes) {
  if (needs_profile({.device = engine.device,
                     .tp = engine.tp,
                     .sp = engine.sp,
                     .schedule = engine.schedule,
                     .strategy = engine.strategy})) {
    add_profile(engine, notes);
  } else if (engine.strategy || is_strategy_file(engine.schedule) ||
             (engine.sp && engine.tp > 1 && engine.device.cuda)) {
    engine.profile = known_profile(engine);
  }
}

std::optional<Profile> known_profile(const EngineConfig& engine) {
  return engine.device.cuda ? gpu_profile(gpu_name(engine.device.first_gpu()))
                            : find_profile(cpu_profile_name(threads_of(engine)));
}

Profile measure_profile(int threads, const Notes& notes) {
  CalibrateConfig config{.threads = threads};
  if (notes.progress) {
    config.progress = [&](const std::string& what) { notes.progress("measuring " + what); };
  }
  Profile profile = calibrate_cpu(config);
  if (notes.progress) notes.progress("");
  return profile;
}

std::filesystem::path profile_cache_file(int threads) {
  const std::filesystem::path folder = profile_cache_folder();
  if (folder.empty()) {
    fail(ErrorCode::kResource,
         "neither XDG_CACHE_HOME nor HOME says where to keep a profile; `braid calibrate -o` does");
  }
  return folder / (cpu_profile_name(threads > 0 ? threads : cpu::usable_cores()) + ".json");
}

}  // namespace braid
