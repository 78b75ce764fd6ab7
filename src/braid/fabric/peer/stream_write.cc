#include "braid/fabric/peer/stream_write.h"

#include <cuda.h>

#include <atomic>
#include <memory>

#include "braid/backend/cuda/check.h"
#include "braid/base/error.h"

namespace braid::fabric {
namespace {

using WriteValue = CUresult (*)(CUstream, CUdeviceptr, cuuint64_t, unsigned int);

// The driver's entry point, or null where there is none.
WriteValue find_write_value() {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
  if (cudaGetDriverEntryPointByVersion("cuStreamWriteValue64", &function, 12000, cudaEnableDefault,
                                       &result) != cudaSuccess ||
      result != cudaDriverEntryPointSuccess) {
    cudaGetLastError();
    return nullptr;
  }
  return reinterpret_cast<WriteValue>(function);
}

struct Addition {
  uint64_t* word;
  uint64_t value;
};

}  // namespace

void stream_write(cudaStream_t stream, uint64_t* word, uint64_t value) {
  static const WriteValue write_value = find_write_value();
  if (!write_value) fail(ErrorCode::kUnsupported, "the CUDA driver has no cuStreamWriteValue64");
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
