#include "braid/engine/bandwidth.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <vector>

#include "braid/backend/cpu/thread_pool.h"

namespace braid {

double measure_read_bandwidth(int threads) {
  constexpr int64_t kWords = (int64_t{256} << 20) / sizeof(uint64_t);
  constexpr int kPasses = 5;
  std::vector<uint64_t> data(kWords, 1);
  std::atomic<uint64_t> total{0};  // keeps the reads alive
  cpu::ThreadPool pool(threads);
  double best = 0;
  for (int pass = 0; pass < kPasses; ++pass) {
    const auto start = std::chrono::steady_clock::now();
    pool.run([&](const cpu::Team& team) {
      const Range share = team.share(kWords);
      uint64_t sums[8] = {};
      for (int64_t i = share.begin; i + 8 <= share.end; i += 8) {
        for (int64_t j = 0; j < 8; ++j) sums[j] += data[i + j];
      }
      for (uint64_t sum : sums) total.fetch_add(sum, std::memory_order_relaxed);
    });
    const std::chrono::duration<double> time = std::chrono::steady_clock::now() - start;
    best = std::max(best, static_cast<double>(kWords * sizeof(uint64_t)) / time.count());
  }
  return total.load() != 0 ? best : 0;
}

}  // namespace braid
