#include "braid/backend/cuda/growing_memory.h"

#include <cuda.h>

#include <algorithm>

#include "braid/backend/cuda/check.h"
#include "braid/backend/cuda/device.h"
#include "braid/backend/cuda/driver_function.h"
#include "braid/base/error.h"
#include "braid/base/math.h"

namespace braid::cuda {
namespace {

// The driver's functions for addresses and the memory behind them.
struct Driver {
#define BRAID_DRIVER(member, name) \
  decltype(&::name) member = driver_function<decltype(::name)>(#name)
  BRAID_DRIVER(attribute, cuDeviceGetAttribute);
  BRAID_DRIVER(granularity, cuMemGetAllocationGranularity);
  BRAID_DRIVER(reserve, cuMemAddressReserve);
  BRAID_DRIVER(free_addresses, cuMemAddressFree);
  BRAID_DRIVER(create, cuMemCreate);
  BRAID_DRIVER(release, cuMemRelease);
  BRAID_DRIVER(map, cuMemMap);
  BRAID_DRIVER(unmap, cuMemUnmap);
  BRAID_DRIVER(set_access, cuMemSetAccess);
#undef BRAID_DRIVER
};

const Driver& driver() {
  static const Driver functions;
  return functions;
}

void check_driver(CUresult result, int device, const char* what) {
  if (result == CUDA_SUCCESS) return;
  fail(ErrorCode::kResource, "cuda:{}: {}: driver error {}", device, what,
       static_cast<int>(result));
}

CUmemAllocationProp memory_of(int device) {
  CUmemAllocationProp prop{};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  prop.location.id = device;
  return prop;
}

CUdeviceptr address(const std::byte* data) {
  return reinterpret_cast<CUdeviceptr>(data);
}

bool manages_addresses(int device) {
  int able = 0;
  check_driver(
      driver().attribute(&able, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, device),
      device, "virtual memory management");
  return able != 0;
}

}  // namespace

GrowingMemory::GrowingMemory(int device, int64_t bytes)
    : device_(device), bytes_(std::max<int64_t>(bytes, 1)) {
  const DeviceScope scope(device);
  if (!manages_addresses(device)) {
    whole_.emplace(device, bytes_);
    data_ = whole_->data();
    backed_ = reserved_ = bytes_;
    return;
  }
  const CUmemAllocationProp prop = memory_of(device);
  size_t step = 0;
  check_driver(driver().granularity(&step, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM), device,
               "granularity of memory");
  step_ = static_cast<int64_t>(step);
  reserved_ = round_up(bytes_, step_);
  CUdeviceptr base = 0;
  check_driver(driver().reserve(&base, reserved_, 0, 0, 0), device,
               "addresses for memory that grows");
  data_ = reinterpret_cast<std::byte*>(base);
}

GrowingMemory::~GrowingMemory() {
  if (whole_) return;
  const DeviceScope scope(device_);
  cudaDeviceSynchronize();  // as cudaFree does: kernels may still read it
  std::byte* at = data_;
  for (int64_t piece : pieces_) {
    driver().unmap(address(at), piece);
    at += piece;
  }
  driver().free_addresses(address(data_), reserved_);
}

void GrowingMemory::back(int64_t bytes) {
  BRAID_CHECK(bytes <= bytes_, "{} bytes of {}", bytes, bytes_);
  const int64_t end = round_up(bytes, step_);
  if (end <= backed_) return;
  const int64_t more = end - backed_;
  const size_t size = more;
  const DeviceScope scope(device_);
  const CUmemAllocationProp prop = memory_of(device_);
  CUmemGenericAllocationHandle memory{};
  const CUresult created = driver().create(&memory, size, &prop, 0);
  if (created == CUDA_ERROR_OUT_OF_MEMORY) {
    size_t free = 0, total = 0;
    cudaMemGetInfo(&free, &total);
    fail(ErrorCode::kResource, "cuda:{} cannot give {} bytes more of memory: {} of {} are free",
         device_, more, free, total);
  }
  check_driver(created, device_, "memory");
  std::byte* const at = data_ + backed_;
  const CUresult mapped = driver().map(address(at), size, 0, memory, 0);
  driver().release(memory);  // the mapping holds it
  check_driver(mapped, device_, "memory behind addresses");
  const CUmemAccessDesc access{.location = prop.location,
                               .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  const CUresult accessible = driver().set_access(address(at), size, &access, 1);
  if (accessible != CUDA_SUCCESS) driver().unmap(address(at), size);
  check_driver(accessible, device_, "access to memory");
  pieces_.push_back(more);
  backed_ = end;
  check_cuda(cudaMemset(at, 0, size), "clearing a GPU's memory");
  // Braid's streams do not wait for the clearing stream.
  check_cuda(cudaStreamSynchronize(nullptr), "clearing a GPU's memory");
}

}  // namespace braid::cuda
