#include "braid/backend/cpu/stream_thread.h"

#include <chrono>
#include <utility>

namespace braid::cpu {
namespace {

// Only the thread's return ends these waits; the thread's function has its own deadlines.
constexpr std::chrono::hours kForever{24 * 365};

}  // namespace

StreamThread::StreamThread(const WaitPolicy& policy)
    : policy_(policy), thread_([this] { work(); }) {}

StreamThread::~StreamThread() {
  stop_ = true;
  started_.advance();
  thread_.join();
}

void StreamThread::start(void (*fn)(void* arg), void* arg) {
  fn_ = fn;
  arg_ = arg;
  joined_ = finished_.load();
  started_.advance();
}

void StreamThread::join() {
  while (finished_.load() == joined_) finished_.wait_past(joined_, policy_, kForever);
  if (std::exception_ptr error = std::exchange(error_, nullptr)) std::rethrow_exception(error);
}

void StreamThread::work() {
  uint32_t seen = 0;
  for (;;) {
    if (!started_.wait_past(seen, policy_, kForever)) continue;
    ++seen;
    if (stop_) return;
    try {
      fn_(arg_);
    } catch (...) {
      error_ = std::current_exception();
    }
    finished_.advance();
  }
}

}  // namespace braid::cpu
