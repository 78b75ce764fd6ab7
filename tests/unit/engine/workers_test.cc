// Threads beside a loop's own.
#include "braid/engine/requests/workers.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <stdexcept>
#include <string>

namespace braid {
namespace {

TEST(Workers, EachCallsEveryNumberOnceOnSeveralThreads) {
  for (const int threads : {0, 1, 3}) {
    Workers workers(threads);
    for (const size_t n : {0, 1, 2, 7, 100}) {
      std::vector<std::atomic<int>> calls(n);
      workers.each(n, [&](size_t i) { ++calls[i]; });
      for (const auto& count : calls) EXPECT_EQ(count, 1);
    }
    if (threads == 0) continue;
    // Two calls that wait for each other: they run at once.
    std::promise<void> first, second;
    workers.each(2, [&](size_t i) {
      (i == 0 ? first : second).set_value();
      (i == 0 ? second : first).get_future().wait();
    });
  }
}

TEST(Workers, AnExceptionComesOutOnceAllHaveReturned) {
  Workers workers(2);
  std::atomic<int> calls = 0;
  const auto some_fail = [&](size_t i) {
    ++calls;
    if (i % 3 == 1) throw std::runtime_error("no " + std::to_string(i));
  };
  EXPECT_THROW(workers.each(20, some_fail), std::runtime_error);
  EXPECT_EQ(calls, 20);
  workers.each(3, [&](size_t) { ++calls; });
  EXPECT_EQ(calls, 23);
}

TEST(Workers, AWorkerThatIsBusyKeepsNobodyWaiting) {
  std::promise<void> begun, go;
  Workers workers(1);
  workers.push([&] {
    begun.set_value();
    go.get_future().wait();
  });
  begun.get_future().wait();
  int calls = 0;
  workers.each(4, [&](size_t) { ++calls; });
  EXPECT_EQ(calls, 4);
  go.set_value();
}

}  // namespace
}  // namespace braid
