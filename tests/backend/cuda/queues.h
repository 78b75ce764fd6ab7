#pragma once

#include <cstdlib>
#include <string_view>

// Hardware queues of the GPUs of a test program.
namespace braid::testing_cuda {

// As many as braid asks for. Ranks on a GPU must not share a queue: a launch would stand before
// another rank's launch, and wait for that launch.
inline const int kQueues = setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);

inline bool ranks_may_share() {
  return std::string_view(std::getenv("CUDA_DEVICE_MAX_CONNECTIONS")) != "1";
}

}  // namespace braid::testing_cuda
