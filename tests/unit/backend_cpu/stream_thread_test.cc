#include "braid/backend/cpu/stream_thread.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <string>
#include <thread>

namespace braid::cpu {
namespace {

using namespace std::chrono_literals;
constexpr WaitPolicy kPolicy{1us, 10};

TEST(StreamThread, RunsBesideItsCallerOneAtATime) {
  StreamThread stream(kPolicy);
  struct State {
    int runs = 0;  // written by the stream, read after join()
    std::thread::id id;
  } state;
  for (int i = 1; i <= 200; ++i) {
    stream.start(
        [](void* arg) {
          auto* s = static_cast<State*>(arg);
          ++s->runs;
          s->id = std::this_thread::get_id();
        },
        &state);
    stream.join();
    ASSERT_EQ(state.runs, i);
  }
  EXPECT_NE(state.id, std::this_thread::get_id());
}

TEST(StreamThread, WaitsLongAndShort) {
  // Past every phase of a wait: spinning, yielding, sleeping, on either side.
  StreamThread stream(kPolicy);
  for (auto pause : {0us, 5us, 200us, 5000us}) {
    std::this_thread::sleep_for(pause);
    std::chrono::microseconds work = pause;
    stream.start([](void* arg) { std::this_thread::sleep_for(*static_cast<decltype(work)*>(arg)); },
                 &work);
    std::this_thread::sleep_for(200us);
    stream.join();
  }
}

TEST(StreamThread, JoinRethrowsOnce) {
  StreamThread stream(kPolicy);
  int value = 0;
  for (int i = 0; i < 3; ++i) {
    stream.start([](void*) { throw std::runtime_error("late"); }, nullptr);
    EXPECT_THROW(stream.join(), std::runtime_error);
    stream.start([](void*) { throw 3; }, nullptr);
    EXPECT_THROW(stream.join(), int);
    stream.start([](void* arg) { ++*static_cast<int*>(arg); }, &value);
    EXPECT_NO_THROW(stream.join());
  }
  EXPECT_EQ(value, 3);
}

TEST(StreamThread, EndsUnused) {
  for (int i = 0; i < 20; ++i) StreamThread stream(kPolicy);
}

}  // namespace
}  // namespace braid::cpu
