#include "braid/fabric/local/run_ranks.h"

#include "braid/fabric/rank_threads.h"

namespace braid::fabric {

void run_ranks(LocalFabric& fabric, const std::function<void(Endpoint&)>& fn) {
  run_rank_threads(fabric, [&](int rank) { fn(fabric.endpoint(rank)); });
}

void run_ranks(const LocalFabricConfig& config, const std::function<void(Endpoint&)>& fn) {
  LocalFabric fabric(config);
  run_ranks(fabric, fn);
}

void run_ranks(int ranks, const std::function<void(Endpoint&)>& fn) {
  run_ranks(LocalFabricConfig{.ranks = ranks}, fn);
}

}  // namespace braid::fabric
