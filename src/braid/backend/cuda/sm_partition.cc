#include "braid/backend/cuda/sm_partition.h"

#include <cuda.h>

#include <algorithm>
#include <map>

#include "braid/backend/cuda/check.h"
#include "braid/backend/cuda/driver_function.h"
#include "braid/backend/cuda/toolkit.h"
#include "braid/base/error.h"

// A driver function by its own name.
#define BRAID_DRIVER(name) driver_function<decltype(name)>(#name, 12050)

namespace braid::cuda {
namespace {

// For Hopper's kernels with clusters of up to 16 CTAs: smaller parts may hold no cluster.
constexpr unsigned kLeastSms = 24;

void check_driver(CUresult result, const char* what) {
  if (result == CUDA_SUCCESS) return;
  fail(ErrorCode::kUnsupported, "{}: driver error {}", what, static_cast<int>(result));
}

std::vector<OwnedPartition> divide_gpu(int device, unsigned parts) {
  const DeviceScope scope(device);
  CUdevResource all{};
  check_driver(BRAID_DRIVER(cuDeviceGetDevResource)(device, &all, CU_DEV_RESOURCE_TYPE_SM),
               "SMs of a GPU");
  int major = 0;
  check_cuda(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device),
             "compute capability");
  const unsigned step = toolkit::sm_step(all, major);
  const unsigned sms = all.sm.smCount / parts / step * step;
  const bool clusters = code_capability() == 90;
  const unsigned least = clusters ? std::max(kLeastSms, step) : step;
  std::vector<CUdevResource> groups(parts);
  unsigned made = sms < least ? 0 : parts;
  if (made > 0) {
    check_driver(
        BRAID_DRIVER(cuDevSmResourceSplitByCount)(groups.data(), &made, &all, nullptr,
                                                  clusters ? toolkit::kSplitForClusters : 0, sms),
        "parts of a GPU's SMs");
  }
  if (made < parts) {
    fail(ErrorCode::kUnsupported, "cuda:{}: {} ranks cannot share its {} SMs (wanted {} for each)",
         device, parts, all.sm.smCount, least);
  }
  std::vector<OwnedPartition> out;
  for (CUdevResource& group : groups) {
    CUdevResourceDesc desc = nullptr;
    check_driver(BRAID_DRIVER(cuDevResourceGenerateDesc)(&desc, &group, 1), "a part of the SMs");
    CUgreenCtx context = nullptr;
    check_driver(
        BRAID_DRIVER(cuGreenCtxCreate)(&context, desc, device, CU_GREEN_CTX_DEFAULT_STREAM),
        "a context for a part of the SMs");
    out.push_back(std::make_unique<SmPartition>(context, static_cast<int>(group.sm.smCount)));
  }
  return out;
}

}  // namespace

SmPartition::SmPartition(CUgreenCtx_st* context, int num_sms)
    : context_(context, BRAID_DRIVER(cuGreenCtxDestroy)), num_sms_(num_sms) {}

OwnedStream SmPartition::make_stream(bool urgent) const {
  cudaStream_t stream = nullptr;
  auto* const create = driver_function<toolkit::GreenStreamCreate>("cuGreenCtxStreamCreate", 12050);
  check_driver(create(&stream, context_.get(), CU_STREAM_NON_BLOCKING, stream_priority(urgent)),
               "a stream of some SMs");
  return OwnedStream(stream);
}

std::vector<OwnedPartition> divide_gpus(const std::vector<int>& devices) {
  std::map<int, std::vector<OwnedPartition>> left;  // by GPU
  std::vector<OwnedPartition> out(devices.size());
  for (size_t r = 0; r < devices.size(); ++r) {
    const auto sharing = std::ranges::count(devices, devices[r]);
    if (sharing == 1) continue;
    auto& parts = left[devices[r]];
    if (parts.empty()) parts = divide_gpu(devices[r], static_cast<unsigned>(sharing));
    out[r] = std::move(parts.back());
    parts.pop_back();
  }
  return out;
}

DeviceInfo device_info(int id, const SmPartition* part) {
  DeviceInfo info = device_info(id);
  if (part) info.num_sms = part->num_sms();
  return info;
}

}  // namespace braid::cuda

#undef BRAID_DRIVER
