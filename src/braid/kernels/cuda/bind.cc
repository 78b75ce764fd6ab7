#include "braid/kernels/cuda/bind.h"

#include <vector>

#include "braid/backend/cuda/memory.h"
#include "braid/kernels/cuda/pointwise/rope_table.h"
#include "braid/tensor/quant.h"

namespace braid::cuda {

std::byte* Scratch::get(const LaunchArgs& args, int64_t bytes) {
  auto& memory = memory_[{args.stream, bytes}];
  if (!memory) memory = std::make_unique<CudaMemory>(args.device.id, bytes);
  return memory->data();
}

std::shared_ptr<DeviceMemory> row_as(const LaunchArgs& args, const TensorView& row, DType dtype) {
  std::vector<std::byte> host(row.bytes());
  check_cuda(cudaMemcpy(host.data(), row.data, host.size(), cudaMemcpyDeviceToHost), "a weight");
  std::vector<float> values(row.cols());
  dequantize_row(row.dtype, host.data(), values.data(), row.cols());
  host.resize(static_cast<size_t>(bytes_of(dtype, row.cols())));
  quantize_row(dtype, values.data(), host.data(), row.cols());
  auto memory = std::make_shared<CudaMemory>(args.device.id, std::ssize(host));
  check_cuda(cudaMemcpy(memory->data(), host.data(), host.size(), cudaMemcpyHostToDevice),
             "a weight");
  return memory;
}

std::shared_ptr<DeviceMemory> turns_table(const LaunchArgs& args, const ops::RopeAttrs& attrs,
                                          const TensorView& factors) {
  std::vector<float> host(factors.data ? static_cast<size_t>(factors.cols()) : 0);
  if (factors.data) {
    BRAID_CHECK(factors.dtype == DType::f32, "rope factors are {}", name(factors.dtype));
    check_cuda(
        cudaMemcpy(host.data(), factors.data, host.size() * sizeof(float), cudaMemcpyDeviceToHost),
        "rope factors");
  }
  const std::vector<uint64_t> turns = rope_turns(attrs, factors.data ? host.data() : nullptr);
  const auto bytes = static_cast<int64_t>(turns.size() * sizeof(uint64_t));
  auto table = std::make_shared<CudaMemory>(args.device.id, bytes);
  check_cuda(cudaMemcpy(table->data(), turns.data(), bytes, cudaMemcpyHostToDevice), "rope table");
  return table;
}

}  // namespace braid::cuda
