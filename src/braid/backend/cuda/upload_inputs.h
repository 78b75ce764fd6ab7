#pragma once

#include "braid/backend/cuda/launch.h"

#include <cstdint>

namespace braid::cuda {

// Copies that a single small kernel makes from pinned host memory: the host link is read once for
// all copies.
struct UploadList {
  static constexpr int kMaxCopies = 32;
  struct Copy {
    const uint32_t* from = nullptr;  // pinned host memory
    uint32_t* to = nullptr;          // device memory
    int64_t words = 0;
  };
  Copy copies[kMaxCopies];
  int count = 0;
};

void upload_inputs(const UploadList& list, const LaunchContext& context);

// Loads the kernel on the current device: its first launch must not, while another rank waits.
void load_upload_inputs();

}  // namespace braid::cuda
