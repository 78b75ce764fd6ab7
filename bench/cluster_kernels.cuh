#pragma once

#include "braid/kernels/cuda/cluster/device/exchange.cuh"
#include "braid/kernels/cuda/ptx/system.h"

// The kernels that bench_cuda_cluster times: rings of bulk copies, and exchanges beside them.
namespace braid::cuda {

constexpr int kTeam = 256;  // threads that exchange
constexpr int kBlock = kTeam + 32;
constexpr int kSlot = 8192;
constexpr int kMaxSlots = 24;
constexpr int kAllShared = 227 << 10;
constexpr int kRepeats = 200;
constexpr int64_t kDataBytes = int64_t{4} << 30;

// A ring of bulk copies that one thread keeps full; what arrives nobody reads.
struct Ring {
  uint8_t* slots;
  uint64_t* full;  // [count]
  int count;
  const uint8_t* data;
  int64_t bytes;  // of data, from which copies are taken in turn
  int64_t at;
  uint64_t policy;
  uint32_t copies = 0;

  [[maybe_unused]] __device__ void ask(int slot) {
    ptx::mbarrier_arrive_expect(&full[slot], kSlot);
    ptx::bulk_copy(slots + slot * kSlot, data + at, kSlot, &full[slot], policy);
    at += kSlot * int64_t{gridDim.x};
    if (at >= bytes) at -= bytes;
    ++copies;
  }
};

struct StreamArgs {
  const uint8_t* data;
  int64_t copies;  // of each CTA
  int slots;
};

__global__ void __launch_bounds__(kBlock) stream_kernel(const StreamArgs a) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  extern __shared__ __align__(128) uint8_t smem[];
  __shared__ uint64_t full[kMaxSlots];
  if (threadIdx.x != 0) return;
  for (int i = 0; i < a.slots; ++i) ptx::mbarrier_init(&full[i], 1);
  ptx::fence_barrier_init();
  Ring ring{smem,
            full,
            a.slots,
            a.data,
            int64_t{1} << 60,
            blockIdx.x * int64_t{kSlot},
            ptx::evict_first_policy()};
  int slot = 0;
  uint32_t parity = 0;
  for (int64_t i = 0; i < a.copies + a.slots; ++i) {
    if (i >= a.slots) ptx::mbarrier_wait(&full[slot], parity ^ 1);
    if (i < a.copies) ring.ask(slot);
    if (++slot == a.slots) slot = 0, parity ^= 1;
  }
#endif
}

struct ExchangeArgs {
  ExchangeKind kind;
  ExchangeForm form;
  int ctas;
  int bytes;  // that each CTA brings, a multiple of 16
  int inbox_bytes;
  int slots;  // of the ring; 0: memory is idle
  const uint8_t* data;
  uint4* mail;
  int64_t mail_bytes;
  uint32_t tag;
  uint64_t* ns;      // [CTAs]
  uint32_t* copies;  // [CTAs]
};

template <ExchangePath kPath>
__global__ void __launch_bounds__(kBlock, 1) exchange_kernel(const ExchangeArgs a) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  extern __shared__ __align__(128) uint8_t smem[];
  __shared__ uint64_t full[kMaxSlots], barriers[kExchangeTurns * kExchangeRounds];
  __shared__ volatile int stage;  // 0: warming up, 1: measured, 2: over
  uint8_t* x = smem + a.slots * kSlot;
  auto* out = reinterpret_cast<float*>(x + a.bytes);
  uint8_t* inbox = x + (a.kind == ExchangeKind::reduce ? 2 : 1) * a.bytes;
  const int rank = blockIdx.x % a.ctas, cluster = blockIdx.x / a.ctas;
  ClusterExchange<kPath> exchange(
      {inbox, a.inbox_bytes, barriers,
       a.mail == nullptr ? nullptr : a.mail + cluster * (a.mail_bytes / 16), a.tag},
      {static_cast<int>(threadIdx.x), kTeam, 1}, rank, a.ctas);
  for (int i = threadIdx.x; i < a.bytes / 4; i += kBlock) {
    reinterpret_cast<float*>(x)[i] = static_cast<float>(i + rank);
  }
  if (threadIdx.x == 0) {
    stage = 0;
    for (int i = 0; i < a.slots; ++i) ptx::mbarrier_init(&full[i], 1);
    ptx::fence_barrier_init();
  }
  __syncthreads();
  exchange.arrive();
  exchange.open();
  if (threadIdx.x >= kTeam) {
    if (threadIdx.x != kTeam || a.slots == 0) return;
    Ring ring{smem,
              full,
              a.slots,
              a.data,
              kDataBytes,
              blockIdx.x * int64_t{kSlot},
              ptx::evict_first_policy()};
    for (int i = 0; i < a.slots; ++i) ring.ask(i);
    uint32_t before = 0;
    int slot = 0;
    uint32_t parity = 0;
    const auto wait = [&] { ptx::mbarrier_wait(&full[slot], parity); };
    const auto step_on = [&] {
      if (++slot == a.slots) slot = 0, parity ^= 1;
    };
    while (stage < 2) {
      if (stage == 0) before = ring.copies;
      wait();
      ring.ask(slot);
      step_on();
    }
    a.copies[blockIdx.x] = ring.copies - before;
    for (int i = 0; i < a.slots; ++i) wait(), step_on();  // nothing is under way at the CTA's end
    return;
  }
  uint64_t begin = 0;
  for (int i = -kRepeats / 2; i < kRepeats; ++i) {
    if (i == 0) {
      begin = ptx::global_nanoseconds();
      stage = 1;
    }
    if (a.kind == ExchangeKind::gather) {
      exchange.gather(x, a.bytes, a.form);
    } else {
      exchange.template reduce<ExchangeSum>(reinterpret_cast<const float*>(x), out, a.bytes / 4,
                                            a.form);
    }
  }
  if (threadIdx.x == 0) {
    a.ns[blockIdx.x] = ptx::global_nanoseconds() - begin;
    stage = 2;
  }
#endif
}

}  // namespace braid::cuda
