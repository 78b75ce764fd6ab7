#include "braid/job/ucx/monitor.h"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

namespace braid::job {
namespace {

// A failing process tells its error before closing: within this time the error has arrived.
constexpr std::chrono::milliseconds kToTell{200};

sigset_t term_set() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  return set;
}

}  // namespace

void Monitor::block_term() {
  const sigset_t set = term_set();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
}

Monitor::Monitor(Config config)
    : config_(std::move(config)),
      period_(std::clamp(config_.timeout / 20, std::chrono::milliseconds(10),
                         std::chrono::milliseconds(250))),
      watches_(static_cast<size_t>(config_.processes)) {
  for (Watch& watch : watches_) watch.seen = Clock::now();
  for (int p = 0; p < std::ssize(config_.pids); ++p) {
    const int pid = config_.pids[static_cast<size_t>(p)];
    if (pid == 0 || p == config_.process) continue;
    watches_[static_cast<size_t>(p)].ended = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
  }
  const sigset_t set = term_set();
  term_ = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
  thread_ = std::thread([this] { run(); });
}

Monitor::~Monitor() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_one();
  thread_.join();
  if (term_ >= 0) close(term_);
  for (const Watch& watch : watches_) {
    if (watch.ended >= 0) close(watch.ended);
  }
}

void Monitor::saw(int process) {
  watches_.at(static_cast<size_t>(process)).seen = Clock::now();
}

void Monitor::lost(int process, const std::string& why) {
  std::lock_guard lock(mutex_);
  Watch& watch = watches_.at(static_cast<size_t>(process));
  if (watch.leaves || watch.lost_at) return;
  watch.lost_at = Clock::now();
  watch.why = fmt::format(
      "the connection is lost: the process ended, or the network between broke ({})", why);
}

void Monitor::leaves(int process) {
  std::lock_guard lock(mutex_);
  watches_.at(static_cast<size_t>(process)).leaves = true;
}

bool Monitor::watches(int process) const {
  return process != config_.process && (config_.process == 0 || process == 0);
}

// Under mutex_. A connection through shared memory does not break when a process ends, and where
// one broke the kernel knows why.
void Monitor::see_ends() {
  for (Watch& watch : watches_) {
    pollfd fd{.fd = watch.ended, .events = POLLIN, .revents = 0};
    if (watch.ended < 0 || watch.leaves || poll(&fd, 1, 0) <= 0) continue;
    close(std::exchange(watch.ended, -1));
    if (!watch.lost_at) watch.lost_at = Clock::now();
    watch.why = "the process ended";
  }
}

void Monitor::run() {
  Clock::time_point last = Clock::now();
  std::optional<Clock::time_point> failed_at;
  std::unique_lock lock(mutex_);
  while (!stop_) {
    const Clock::time_point now = Clock::now();
    // After a pause of this process itself (a debugger, a stopped machine) nobody else is to blame.
    if (now - last > config_.timeout / 2) {
      for (Watch& watch : watches_) watch.seen = now;
    }
    last = now;
    see_ends();
    std::vector<std::pair<int, std::string>> failures;
    for (int p = 0; p < config_.processes; ++p) {
      const Watch& watch = watches_[static_cast<size_t>(p)];
      if (watch.leaves || p == config_.process) continue;
      if (watch.lost_at && now - *watch.lost_at > kToTell) {
        failures.emplace_back(p, watch.why);
      } else if (watches(p) && now - watch.seen.load() > config_.timeout) {
        failures.emplace_back(
            p, fmt::format("no sign of life for {:.3g} s: the process is stopped, or the network "
                           "between broke",
                           std::chrono::duration<double>(config_.timeout).count()));
      }
    }
    lock.unlock();
    signalfd_siginfo signal{};
    if (term_ >= 0 && read(term_, &signal, sizeof(signal)) == sizeof(signal)) config_.on_term();
    if (!failures.empty()) config_.on_failure(failures[0].first, failures[0].second);
    if (config_.failed()) {
      if (!failed_at) failed_at = now;
      if (now - *failed_at > config_.grace) config_.end();
    } else {
      for (int p = 0; p < config_.processes; ++p) {
        if (watches(p)) config_.give_sign(p);
      }
    }
    lock.lock();
    wake_.wait_for(lock, period_, [this] { return stop_; });
  }
}

}  // namespace braid::job
