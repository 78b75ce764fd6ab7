#pragma once

#include <cuda_runtime.h>

#include <cstdio>
#include <exception>
#include <fstream>
#include <string>

#include "braid/backend/cuda/check.h"
#include "braid/base/error.h"

namespace braid::cuda {

// main() of a benchmark on GPUs: an error, as no GPU, is one line behind the program's name, and
// the status is 1.
template <typename Run>
int gpu_main(const char* program, const Run& run) {
  try {
    int gpus = 0;
    check_cuda(cudaGetDeviceCount(&gpus), "cudaGetDeviceCount");
    if (gpus == 0) fail(ErrorCode::kResource, "a GPU is needed here");
    return run();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", program, error.what());
    return 1;
  }
}

// Fails with kResource where the file could not be written.
inline void write_results(const std::string& path, const std::string& text) {
  std::ofstream file(path);
  if (!(file << text).flush()) fail(ErrorCode::kResource, "{} cannot be written", path);
}

}  // namespace braid::cuda
