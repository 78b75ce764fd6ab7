#include "braid/fabric/local/run_ranks.h"

#include <system_error>
#include <thread>
#include <vector>

namespace braid::fabric {

void run_ranks(LocalFabric& fabric, const std::function<void(Endpoint&)>& fn) {
  std::vector<std::thread> threads;
  threads.reserve(fabric.world_size());
  try {
    for (int rank = 0; rank < fabric.world_size(); ++rank) {
      threads.emplace_back([&fabric, &fn, rank] {
        try {
          fn(fabric.endpoint(rank));
        } catch (...) {
          fabric.abort(rank, std::current_exception());
        }
      });
    }
  } catch (const std::system_error& error) {
    const int rank = static_cast<int>(threads.size());
    fabric.abort(rank, std::make_exception_ptr(Error(
                           ErrorCode::kResource, fmt::format("rank {}: cannot start its thread: {}",
                                                             rank, error.what()))));
  }
  for (std::thread& thread : threads) thread.join();
  fabric.rethrow_error();
}

void run_ranks(const LocalFabricConfig& config, const std::function<void(Endpoint&)>& fn) {
  LocalFabric fabric(config);
  run_ranks(fabric, fn);
}

void run_ranks(int ranks, const std::function<void(Endpoint&)>& fn) {
  run_ranks(LocalFabricConfig{.ranks = ranks}, fn);
}

}  // namespace braid::fabric
