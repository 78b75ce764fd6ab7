#include "braid/fabric/rank_threads.h"

#include <system_error>
#include <thread>
#include <vector>

namespace braid::fabric {

void run_rank_threads(Fabric& fabric, const std::function<void(int rank)>& fn) {
  std::vector<std::thread> threads;
  threads.reserve(fabric.ranks_here());
  const int first = fabric.first_rank();
  try {
    for (int rank = first; rank < first + fabric.ranks_here(); ++rank) {
      threads.emplace_back([&fabric, &fn, rank] {
        try {
          fn(rank);
        } catch (...) {
          fabric.abort(rank, std::current_exception());
        }
      });
    }
  } catch (const std::system_error& error) {
    const int rank = first + static_cast<int>(threads.size());
    fabric.abort(rank, std::make_exception_ptr(Error(
                           ErrorCode::kResource, fmt::format("rank {}: cannot start its thread: {}",
                                                             rank, error.what()))));
  }
  for (std::thread& thread : threads) thread.join();
  fabric.rethrow_error();
}

}  // namespace braid::fabric
