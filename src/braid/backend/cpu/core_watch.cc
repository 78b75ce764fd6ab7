#include "braid/backend/cpu/core_watch.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include "braid/backend/cpu/thread_pool.h"

namespace braid::cpu {
namespace {

constexpr double kEnough = 0.6;
constexpr double kLongEnough = 0.5;  // seconds; the start of a program is no measure

double cpu_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

}  // namespace

CoreWatch::CoreWatch() : cpu_seconds_(cpu_seconds()) {}

std::string CoreWatch::complaint(int threads) const {
  const double wall = std::chrono::duration<double>(Clock::now() - start_).count();
  if (wall < kLongEnough || threads > usable_cores()) return {};
  const double share = (cpu_seconds() - cpu_seconds_) / (wall * threads);
  if (share >= kEnough) return {};
  return fmt::format(
      "other programs use the cores: the {} thread{} had {:.0f}% of {}; fewer "
      "threads (-t) may be faster",
      threads, threads == 1 ? "" : "s", 100 * share, threads == 1 ? "its core" : "theirs");
}

}  // namespace braid::cpu
