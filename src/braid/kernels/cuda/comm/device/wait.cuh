#pragma once

#include "braid/kernels/cuda/comm/device/comm_view.h"
#include "braid/kernels/cuda/ptx/barrier.h"
#include "braid/kernels/cuda/ptx/prefetch.h"
#include "braid/kernels/cuda/ptx/system.h"

// Waits of kernels for other GPUs: bounded, reported, never trapping.
namespace braid::cuda {

__device__ inline bool is_aborted(const CommView& view) {
  return ptx::load_relaxed_system(view.aborted) != 0;
}

// Reports the expired wait, unless this rank has reported an earlier wait, and ends all waits of
// all ranks of the group.
__device__ __noinline__ inline void report_expired(const CommView& view, int from,
                                                   uint32_t expected, uint32_t seen,
                                                   uint64_t waited_ns) {
  if (atomicExch(&view.peer_control[view.rank]->reported, 1u) == 0) {
    volatile fabric::WaitReport* report = view.report;
    report->tag = view.tag;
    report->from = view.world_rank[from];
    report->expected = expected;
    report->seen = seen;
    report->waited_ns = waited_ns;
    ptx::store_release_system(&view.report->expired, 1);
  }
  for (int p = 0; p < view.ranks; ++p) {
    ptx::store_relaxed_system(&view.peer_control[p]->aborted, 1);
  }
}

// Whether a wait for `from` has lasted too long, or another has, and the job ends; asked now and
// then. `start` is 0 at first.
__device__ __noinline__ inline bool give_up(const CommView& view, int from, uint32_t expected,
                                            uint32_t seen, uint64_t& start) {
  if (is_aborted(view)) return true;
  const uint64_t now = ptx::global_nanoseconds();
  if (start == 0) start = now;
  if (now - start < view.deadline_ns) return false;
  report_expired(view, from, expected, seen, now - start);
  return true;
}
constexpr uint32_t kFreeLooks = 64;  // before it is asked

// Returns true after poll() is true; false after the deadline or an abort. seen() gives the seen
// value for the report.
template <class Poll, class Seen>
__device__ bool wait_until(const CommView& view, int from, uint32_t expected, Poll&& poll,
                           Seen&& seen) {
  // A separate, minimal loop: data in time is seen sooner.
#pragma unroll 1
  for (uint32_t i = 0; i < kFreeLooks; ++i) {
    if (poll()) return true;
  }
  uint64_t start = 0;
  while (!give_up(view, from, expected, seen(), start)) {
#pragma unroll 1
    for (uint32_t i = 0; i < kFreeLooks; ++i) {
      if (poll()) return true;
    }
  }
  return false;
}

// Flags only grow, and wrap after 2^31 collectives.
__device__ inline bool wait_flag(const CommView& view, int from, const uint32_t* flag,
                                 uint32_t expected) {
  return wait_until(
      view, from, expected,
      [&] { return static_cast<int32_t>(ptx::load_acquire_system(flag) - expected) >= 0; },
      [&] { return ptx::load_acquire_system(flag); });
}

// The collective that this kernel is; 0 if the job is aborted. After the dependency wait.
__device__ inline uint32_t begin_epoch(const CommView& view) {
  const uint32_t last = view.own->epoch[blockIdx.x];
  return is_aborted(view) ? 0 : last + 1;
}

// The epoch, the same for all threads of the CTA; 0 if the job is aborted.
__device__ inline uint32_t begin_epoch_together(const CommView& view) {
  const uint32_t epoch = begin_epoch(view);
  return __syncthreads_and(epoch != 0) ? epoch : 0;
}

// Called by all threads of the CTA, at the end or, after sending, before waits: the next kernel
// reads the epoch after its dependency wait.
__device__ inline void end_epoch(const CommView& view, uint32_t epoch) {
  __syncthreads();  // all have read the epoch
  if (epoch == 0) return;
  for (int c = blockIdx.x + gridDim.x * threadIdx.x; c < kMaxCommCtas;
       c += gridDim.x * blockDim.x) {
    view.own->epoch[c] = epoch;
  }
}

// Meets CTA c of every rank and sees the other CTAs' earlier writes; false if too late.
__device__ inline bool barrier_with_peers(const CommView& view, uint32_t value) {
  __syncthreads();
  bool ok = true;
  const int peer = threadIdx.x;
  if (peer < view.ranks && peer != view.rank) {
    ptx::store_release_system(&view.control[peer]->flags[view.rank][blockIdx.x], value);
    ok = wait_flag(view, peer, &view.own->flags[peer][blockIdx.x], value);
  }
  return __syncthreads_and(ok);
}

}  // namespace braid::cuda
