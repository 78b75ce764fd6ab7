#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace braid::cuda::test {

// Sets marks[s] (of `most`) of each SM s on which one of many CTAs runs.
void mark_sms(uint32_t* marks, int most, cudaStream_t stream);

}  // namespace braid::cuda::test
