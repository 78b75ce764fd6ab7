#include "braid/backend/cuda/upload_inputs.h"

namespace braid::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kCtas = 8;

__global__ void upload(const __grid_constant__ UploadList list) {
  for (int c = 0; c < list.count; ++c) {
    const UploadList::Copy& copy = list.copies[c];
    for (int64_t i = blockIdx.x * kThreads + threadIdx.x; i < copy.words; i += kCtas * kThreads) {
      copy.to[i] = copy.from[i];
    }
  }
}

}  // namespace

// Never launched early: kernels before this copy may still read the overwritten memory.
void upload_inputs(const UploadList& list, const LaunchContext& context) {
  launch_kernel({context.stream, false}, upload, dim3(kCtas), dim3(kThreads), 0, list);
}

void load_upload_inputs() {
  load_kernel(upload);
}

}  // namespace braid::cuda
