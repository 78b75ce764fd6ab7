#include "braid/interrupt.h"

#include <atomic>

namespace braid::app {
namespace {

// What a signal handler can reach.
std::atomic<int> count{0};
std::atomic<int> most{1};
static_assert(std::atomic<int>::is_always_lock_free);

void on_interrupt(int signal) {
  if (++count <= most) return;
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

}  // namespace

Interrupt::Interrupt(int patience) {
  most = patience;
  count = 0;
  struct sigaction action {};
  action.sa_handler = on_interrupt;
  action.sa_flags = SA_RESTART;
  sigaction(SIGINT, &action, &before_);
}

Interrupt::~Interrupt() {
  sigaction(SIGINT, &before_, nullptr);
}

bool Interrupt::asked() const {
  return count > 0;
}

void Interrupt::clear() {
  count = 0;
}

}  // namespace braid::app
