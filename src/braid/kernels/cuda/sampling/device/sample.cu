#include "braid/kernels/cuda/sampling/device/sample.h"

#include "braid/base/error.h"
#include "braid/kernels/cuda/sampling/device/sample_row.cuh"

namespace braid::cuda {
namespace {

using sampling::RowSampler;
using sampling::RowShared;

template <bool kCluster, bool kStaged>
__global__ __launch_bounds__(kSampleThreads,
                             2) void sample_kernel(const __grid_constant__ SampleCall call,
                                                   int cluster, int slice) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
  constexpr bool kClusterHere = false;  // never launched with clusters there
#else
  constexpr bool kClusterHere = kCluster;
#endif
  extern __shared__ __align__(16) unsigned char memory[];
  RowShared& shared = *reinterpret_cast<RowShared*>(memory);
  ptx::grid_launch_dependents();
  ptx::grid_dependency_wait();
  const int row = static_cast<int>(blockIdx.x) / cluster;
  if (row >= *call.rows) return;
  const int slot = call.slots != nullptr ? call.slots[row] : row;
  if (slot < 0) return;
  float* values;
  if constexpr (kStaged) {
    values = reinterpret_cast<float*>(memory + kSampleSharedBytes);
  } else {
    values = call.workspace + static_cast<int64_t>(row) * ((call.desc.vocab + 3) / 4 * 4) +
             static_cast<int64_t>(blockIdx.x % cluster) * slice;
  }
  RowSampler<kClusterHere>(call, shared, values, row, slot, slice).run();
}

using Kernel = void (*)(SampleCall, int, int);

Kernel kernel_of(const SamplingConfig& config) {
  if (config.cluster == 1) {
    return config.staged ? sample_kernel<false, true> : sample_kernel<false, false>;
  }
  return config.staged ? sample_kernel<true, true> : sample_kernel<true, false>;
}

size_t shared_bytes(const SamplingDesc& desc, const SamplingConfig& config) {
  return kSampleSharedBytes +
         (config.staged ? sizeof(float) * static_cast<size_t>(slice_of(desc, config)) : 0);
}

int attribute_of(cudaDeviceAttr attribute) {
  int device = 0;
  int value = 0;
  check_cuda(cudaGetDevice(&device), "sampling: device");
  check_cuda(cudaDeviceGetAttribute(&value, attribute, device), "sampling: device attribute");
  return value;
}

}  // namespace

SamplingDevice sampling_device() {
  return {.compute_capability = code_capability(),
          .num_sms = attribute_of(cudaDevAttrMultiProcessorCount),
          .shared_bytes = attribute_of(cudaDevAttrMaxSharedMemoryPerBlockOptin)};
}

SamplingDevice sampling_device(const DeviceInfo& device) {
  return {.compute_capability = device.compute_capability,
          .num_sms = device.num_sms,
          .shared_bytes = static_cast<int>(device.shared_memory_per_cta)};
}

void prepare_sampling(const SamplingDesc& desc, const SamplingConfig& config) {
  const Kernel kernel = kernel_of(config);
  cudaFuncAttributes attributes;
  check_cuda(cudaFuncGetAttributes(&attributes, kernel), "sampling: kernel");
  const size_t bytes = shared_bytes(desc, config);
  if (bytes > static_cast<size_t>(attributes.maxDynamicSharedSizeBytes)) {
    allow_shared_memory(kernel, bytes);
  }
  if (config.cluster > 8) {
    check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1),
               "sampling: cluster of 16");
  }
}

void sample(const SampleCall& call, const SamplingConfig& config, LaunchContext context) {
  BRAID_CHECK(call.logits && call.rows && call.params && call.states && call.step &&
              call.token_ids && call.logits_stride >= call.desc.vocab && call.ring > 0);
  BRAID_CHECK((call.mask == nullptr) == (call.mask_ready == nullptr));
  BRAID_CHECK(config.staged || call.workspace != nullptr, "sampling as {} needs a workspace",
              to_string(config));
  BRAID_CHECK(0 <= call.max_logprobs && call.max_logprobs <= kMaxLogprobs);
  cudaLaunchAttribute attributes[2];
  cudaLaunchConfig_t launch{};
  launch.gridDim = dim3(static_cast<unsigned>(call.desc.capacity * config.cluster));
  launch.blockDim = dim3(kSampleThreads);
  launch.dynamicSmemBytes = shared_bytes(call.desc, config);
  launch.stream = context.stream;
  launch.attrs = attributes;
  if (config.cluster > 1) {
    attributes[launch.numAttrs].id = cudaLaunchAttributeClusterDimension;
    attributes[launch.numAttrs++].val.clusterDim = {static_cast<unsigned>(config.cluster), 1, 1};
  }
  if (context.starts_early()) {
    attributes[launch.numAttrs].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[launch.numAttrs++].val.programmaticStreamSerializationAllowed = 1;
  }
  check_cuda(cudaLaunchKernelEx(&launch, kernel_of(config), call, config.cluster,
                                slice_of(call.desc, config)),
             "sampling");
}

}  // namespace braid::cuda
