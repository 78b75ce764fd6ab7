#include "braid/kernels/cuda/bind.h"

#include <vector>

#include "braid/backend/cuda/memory.h"
#include "braid/tensor/quant.h"

namespace braid::cuda {

std::byte* Scratch::get(const LaunchArgs& args, int64_t bytes) {
  auto& memory = memory_[{args.stream, bytes}];
  if (!memory) memory = std::make_unique<CudaMemory>(args.device.id, bytes);
  return memory->data();
}

std::shared_ptr<DeviceMemory> row_as(const LaunchArgs& args, const TensorView& row, DType dtype) {
  std::vector<std::byte> host(static_cast<size_t>(row.bytes()));
  check_cuda(cudaMemcpy(host.data(), row.data, host.size(), cudaMemcpyDeviceToHost), "a weight");
  std::vector<float> values(static_cast<size_t>(row.cols()));
  dequantize_row(row.dtype, host.data(), values.data(), row.cols());
  host.resize(static_cast<size_t>(bytes_of(dtype, row.cols())));
  quantize_row(dtype, values.data(), host.data(), row.cols());
  auto memory = std::make_shared<CudaMemory>(args.device.id, std::ssize(host));
  check_cuda(cudaMemcpy(memory->data(), host.data(), host.size(), cudaMemcpyHostToDevice),
             "a weight");
  return memory;
}

}  // namespace braid::cuda
