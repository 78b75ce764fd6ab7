#include "backend/cuda/cluster/exchange_kernel.h"

#include <algorithm>

#include "braid/backend/cuda/memory.h"
#include "braid/kernels/cuda/cluster/device/cluster_fit.h"
#include "braid/kernels/cuda/cluster/device/exchange.cuh"
#include "braid/kernels/cuda/linear/device/cluster_launch.h"

namespace braid::cuda::test {
namespace {

struct Args {
  const ExchangeStep* steps;
  const uint8_t* x;
  uint8_t* out;
  uint4* mail;
  int64_t mail_bytes;  // of a cluster
  int32_t num_steps;
  int32_t ctas;
  int32_t inbox_bytes;
  int32_t x_bytes;    // of shared memory
  int32_t out_bytes;  // of shared memory
  uint32_t seed;
};

template <ExchangePath kPath>
__global__ void __launch_bounds__(kExchangeTestThreads) exchange_kernel(const Args a) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  extern __shared__ __align__(16) uint8_t smem[];
  uint8_t* x = smem;
  uint8_t* out = x + a.x_bytes;
  uint8_t* inbox = out + a.out_bytes;
  auto* barriers = reinterpret_cast<uint64_t*>(inbox + kExchangeTurns * a.inbox_bytes);
  for (int i = threadIdx.x; i < a.x_bytes + a.out_bytes + kExchangeTurns * a.inbox_bytes;
       i += blockDim.x) {
    smem[i] = 0xff;
  }
  const int rank = blockIdx.x % a.ctas, cluster = blockIdx.x / a.ctas;
  const ExchangeTeam team{static_cast<int>(threadIdx.x), kExchangeTestThreads, 1};
  ClusterExchange<kPath> exchange(
      {inbox, a.inbox_bytes, barriers,
       a.mail == nullptr ? nullptr : a.mail + cluster * a.mail_bytes / 16, 1},
      team, rank, a.ctas);
  __syncthreads();  // poison lies below what others send
  exchange.arrive();
  exchange.open();
  uint32_t random = (a.seed + blockIdx.x) * 2654435761u;
  for (int i = 0; i < a.num_steps; ++i) {
    const ExchangeStep s = a.steps[i];
    const int bytes = (s.count * (s.bf16 ? 2 : 4) + 15) / 16 * 16;
    for (int b = threadIdx.x; b < bytes; b += blockDim.x) {
      x[b] = a.x[s.x + int64_t{blockIdx.x} * bytes + b];
    }
    random = random * 1664525u + 1013904223u;
    if (random >> 30 == 0) __nanosleep(random >> 16 & 4095);
    const uint8_t* result = out;
    int result_bytes = (s.count * 4 + 15) / 16 * 16;
    const auto* floats = reinterpret_cast<const float*>(x);
    const auto* halves = reinterpret_cast<const __nv_bfloat16*>(x);
    auto* sums = reinterpret_cast<float*>(out);
    if (s.kind == ExchangeKind::gather) {
      result = exchange.gather(x, bytes, s.form);
      result_bytes = a.ctas * bytes;
    } else if (s.max) {
      s.bf16 ? exchange.template reduce<ExchangeMax>(halves, sums, s.count, s.form)
             : exchange.template reduce<ExchangeMax>(floats, sums, s.count, s.form);
    } else {
      s.bf16 ? exchange.template reduce<ExchangeSum>(halves, sums, s.count, s.form)
             : exchange.template reduce<ExchangeSum>(floats, sums, s.count, s.form);
    }
    if (random >> 28 == 5) __nanosleep(random >> 14 & 4095);
    for (int b = threadIdx.x; b < result_bytes; b += blockDim.x) {
      a.out[s.out + int64_t{blockIdx.x} * result_bytes + b] = result[b];
    }
  }
#endif
}

using Kernel = void (*)(const Args);
Kernel kernel_of(ExchangePath path) {
  return path == ExchangePath::chip ? exchange_kernel<ExchangePath::chip>
                                    : exchange_kernel<ExchangePath::memory>;
}

}  // namespace

bool runs_clusters(int ctas) {
  const auto* kernel = reinterpret_cast<const void*>(kernel_of(ExchangePath::chip));
  return max_active_clusters(kernel, ctas, kExchangeTestThreads, 1 << 16) > 0;
}

std::vector<uint8_t> run_exchanges(const ExchangeLaunch& launch, const std::vector<uint8_t>& x,
                                   int64_t out_bytes) {
  Args a{};
  for (const ExchangeStep& s : launch.steps) {
    a.x_bytes = std::max(a.x_bytes, static_cast<int32_t>(s.x_bytes()));
    if (s.kind == ExchangeKind::reduce) {
      a.out_bytes = std::max(a.out_bytes, static_cast<int32_t>(s.out_bytes(launch.ctas)));
    }
  }
  const bool in_memory = launch.path == ExchangePath::memory;
  a.mail_bytes = exchange_mail_bytes(launch.ctas, launch.inbox_bytes);
  const auto steps_bytes = static_cast<int64_t>(launch.steps.size() * sizeof(ExchangeStep));
  CudaMemory steps(0, steps_bytes), in(0, static_cast<int64_t>(x.size())), out(0, out_bytes),
      mail(0, in_memory ? launch.clusters * a.mail_bytes : 16);
  check_cuda(cudaMemcpy(steps.data(), launch.steps.data(), static_cast<size_t>(steps_bytes),
                        cudaMemcpyHostToDevice),
             "steps");
  check_cuda(cudaMemcpy(in.data(), x.data(), x.size(), cudaMemcpyHostToDevice), "x");
  check_cuda(cudaMemset(out.data(), 0xa5, static_cast<size_t>(out_bytes)), "poison");
  a.steps = reinterpret_cast<const ExchangeStep*>(steps.data());
  a.x = reinterpret_cast<const uint8_t*>(in.data());
  a.out = reinterpret_cast<uint8_t*>(out.data());
  a.mail = in_memory ? reinterpret_cast<uint4*>(mail.data()) : nullptr;
  a.num_steps = static_cast<int32_t>(launch.steps.size());
  a.ctas = launch.ctas;
  a.inbox_bytes = launch.inbox_bytes;
  a.seed = launch.seed;
  const int smem = a.x_bytes + a.out_bytes + kExchangeTurns * a.inbox_bytes +
                   kExchangeTurns * kExchangeRounds * 8;
  const Kernel kernel = kernel_of(launch.path);
  if (max_active_clusters(reinterpret_cast<const void*>(kernel), launch.ctas, kExchangeTestThreads,
                          smem) < launch.clusters) {
    fail(ErrorCode::kUnsupported, "the device does not run so many clusters at once");
  }
  launch_clusters({}, kernel, launch.clusters, launch.ctas, kExchangeTestThreads, smem, a);
  check_cuda(cudaDeviceSynchronize(), "exchanges");
  std::vector<uint8_t> result(static_cast<size_t>(out_bytes));
  check_cuda(cudaMemcpy(result.data(), out.data(), result.size(), cudaMemcpyDeviceToHost), "out");
  return result;
}

}  // namespace braid::cuda::test
