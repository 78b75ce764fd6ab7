#include "braid/fabric/peer/stream_write.h"

#include <cuda.h>

#include <atomic>
#include <memory>

#include "braid/backend/cuda/check.h"
#include "braid/backend/cuda/driver_function.h"
#include "braid/base/error.h"

namespace braid::fabric {
namespace {

struct Addition {
  uint64_t* word;
  uint64_t value;
};

}  // namespace

void stream_write(cudaStream_t stream, uint64_t* word, uint64_t value) {
  static auto* const write_value =
      cuda::driver_function<decltype(cuStreamWriteValue64)>("cuStreamWriteValue64");
  const CUresult result = write_value(stream, reinterpret_cast<CUdeviceptr>(word), value, 0);
  if (result != CUDA_SUCCESS) {
    fail(ErrorCode::kResource, "signal on a stream: cuStreamWriteValue64 gave error {}",
         static_cast<int>(result));
  }
}

void stream_add(cudaStream_t stream, uint64_t* word, uint64_t value) {
  auto addition = std::make_unique<Addition>(Addition{word, value});
  cuda::check_cuda(cudaLaunchHostFunc(
                       stream,
                       [](void* data) {
                         const std::unique_ptr<Addition> a(static_cast<Addition*>(data));
                         std::atomic_ref(*a->word).fetch_add(a->value);
                       },
                       addition.get()),
                   "signal on a stream");
  (void)addition.release();  // the callback has it now
}

}  // namespace braid::fabric
