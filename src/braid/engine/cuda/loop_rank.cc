#include "braid/engine/cuda/loop_rank.h"

#include <time.h>

namespace braid::cuda {

CudaReplay& replay_of(Executor& executor) {
  return dynamic_cast<CudaReplay&>(executor.replay());
}

double thread_seconds() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

}  // namespace braid::cuda
