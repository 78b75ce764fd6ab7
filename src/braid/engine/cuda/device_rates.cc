#include <algorithm>

#include "braid/backend/cuda/device.h"
#include "braid/backend/cuda/handles.h"
#include "braid/backend/cuda/memory.h"
#include "braid/backend/cuda/read_stream.h"
#include "braid/engine/bandwidth.h"
#include "braid/kernels/cuda/linear/device/gemm.h"
#include "braid/kernels/cuda/sampling/device/random_fill.h"
#include "braid/tensor/view.h"

namespace braid {
namespace {

constexpr int kRuns = 12;

// Seconds of the fastest among several runs.
template <class Run>
double best_seconds(cudaStream_t stream, const Run& run) {
  const cuda::OwnedEvent begin = cuda::make_event(true), end = cuda::make_event(true);
  float best = 0;
  for (int i = 0; i < kRuns; ++i) {
    cuda::record(begin, stream);
    run();
    cuda::record(end, stream);
    cuda::check_cuda(cudaEventSynchronize(end.get()), "measuring a GPU");
    float ms = 0;
    cuda::check_cuda(cudaEventElapsedTime(&ms, begin.get(), end.get()), "measuring a GPU");
    best = i == 0 ? ms : std::min(best, ms);
  }
  return 1e-3 * static_cast<double>(best);
}

// Memory of normal numbers: zeros are read and multiplied faster than data.
std::unique_ptr<cuda::CudaMemory> normals(int device, int64_t rows, int64_t cols,
                                          cudaStream_t stream) {
  auto memory = std::make_unique<cuda::CudaMemory>(device, 2 * rows * cols);
  cuda::random_fill({.out = make_view(memory->data(), DType::bf16, {rows, cols}),
                     .index_stride = cols,
                     .seed = 1},
                    {stream});
  return memory;
}

}  // namespace

DeviceRates measure_device_rates(int device) {
  const cuda::DeviceInfo info = cuda::device_info(device);
  const cuda::DeviceScope scope(device);
  const cuda::OwnedStream stream = cuda::make_stream();
  DeviceRates rates;
  size_t free = 0, total = 0;
  cuda::check_cuda(cudaMemGetInfo(&free, &total), "free memory");
  constexpr int64_t kCols = 8192;
  if (const int64_t bytes =
          std::min<int64_t>(4LL << 30, static_cast<int64_t>(free) / 2) & -(2 * kCols);
      bytes >= 1LL << 30) {
    const auto memory = normals(device, bytes / (2 * kCols), kCols, stream.get());
    cuda::CudaMemory sink(device, 16);
    double seconds = 0;
    for (const int ctas : {1, 2}) {
      const double s = best_seconds(stream.get(), [&] {
        cuda::read_stream(memory->data(), bytes, sink.data(), ctas * info.num_sms, {stream.get()});
      });
      seconds = seconds == 0 ? s : std::min(seconds, s);
    }
    rates.read_bytes = static_cast<double>(bytes) / seconds;
  }
  if (free >= size_t{2} << 30 && cuda::cublaslt_available()) {
    constexpr int64_t kSize = 8192;
    const auto a = normals(device, kSize, kSize, stream.get());
    const auto b = normals(device, kSize, kSize, stream.get());
    cuda::CudaMemory c(device, 2 * kSize * kSize);
    cuda::Gemm gemm(cuda::CublasLt::load(), {.m = kSize, .n = kSize, .k = kSize});
    cuda::CudaMemory workspace(device, static_cast<int64_t>(gemm.workspace_bytes()));
    const cuda::GemmPointers pointers{
        .x = a->data(), .w = b->data(), .y = c.data(), .workspace = workspace.data()};
    gemm.prepare(pointers, stream.get(), true);
    const double seconds = best_seconds(stream.get(), [&] { gemm.run({stream.get()}, pointers); });
    rates.products = 2.0 * kSize * kSize * kSize / seconds;
  }
  return rates;
}

}  // namespace braid
