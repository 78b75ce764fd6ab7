#pragma once

#include <cstdlib>
#include <string_view>

// Hardware queues of the GPUs of a test program.
namespace braid::testing_cuda {

// As braid asks for: ranks that share a GPU must not share its queues, in which the next launch of
// one would stand before the one that it waits for of another.
inline const int kQueues = setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);

inline bool ranks_may_share() {
  return std::string_view(std::getenv("CUDA_DEVICE_MAX_CONNECTIONS")) != "1";
}

}  // namespace braid::testing_cuda
