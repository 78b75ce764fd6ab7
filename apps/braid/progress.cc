#include "braid/progress.h"

#include <unistd.h>

#include <cstdio>

namespace braid::app {

Progress::Progress()
    : terminal_(isatty(STDERR_FILENO) != 0), next_(Clock::now() + std::chrono::seconds(1)) {}

void Progress::show(const std::string& what) {
  if (!terminal_ || Clock::now() < next_) return;
  announce(what);
}

void Progress::announce(const std::string& what) {
  if (!terminal_) return;
  std::fprintf(stderr, "\r\033[K%s", what.c_str());
  std::fflush(stderr);
  next_ = Clock::now() + std::chrono::milliseconds(100);
  shown_ = true;
}

void Progress::clear() {
  if (!shown_) return;
  std::fputs("\r\033[K", stderr);
  std::fflush(stderr);
  shown_ = false;
}

}  // namespace braid::app
