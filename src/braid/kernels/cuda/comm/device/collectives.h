#pragma once

#include "braid/backend/cuda/launch.h"
#include "braid/kernels/cuda/comm/device/device_comm.h"

// Launches of collectives: no allocation, no synchronization, capturable. Every rank makes equal
// launches, in equal order, from a thread with the rank's own device current. The endpoint's
// TrafficCounters count bytes at each launch (in a captured launch: at each replay), at capacity.
namespace braid::cuda {

// Memory is the rank's own. With a direct or copy_engine config, memory that peers reach must be
// symmetric: x in sums, y in all but reduce_scatter.
struct CollectiveParams {
  const void* x = nullptr;
  void* y = nullptr;  // disjoint from x; equal for all_reduce; all_gather: x may be y's own part
  const int64_t* live_rows = nullptr;  // device, [1]: rows that count, <= desc.rows
};

// Before the first launch of a staged `desc`: memory and transfers for it. On every rank in the
// same order, at a quiescent point; nothing for other configs.
void prepare(DeviceComm& comm, const CollectiveDesc& desc, const CollectiveConfig& config);

// Runs the collective `desc` by `config`. Throws as verify does, and kInvalidArgument for memory
// that does not fit desc.
void collective(DeviceComm& comm, const CollectiveDesc& desc, const CollectiveParams& params,
                const CollectiveConfig& config, const LaunchContext& context);

// The desc of a call on this memory.
CollectiveDesc describe(const DeviceComm& comm, CollectiveOp op, DType dtype, int64_t rows,
                        int64_t cols, const CollectiveParams& params);

// s = r + sum_p x_p;  y = s / sqrt(mean(s^2) + eps) * w: ops::kAllReduceAddRmsNorm, one shot. The
// sum is not rounded before the residual is added. Pointers are 16-byte aligned.
struct ReduceNormParams {
  DType dtype = DType::bf16;    // of x and y: bf16 or f32
  const void* x = nullptr;      // [rows, cols], this rank's summand
  const float* r = nullptr;     // [rows, cols]
  const void* w = nullptr;      // [cols], constant
  DType w_dtype = DType::bf16;  // bf16 or f32
  float* s = nullptr;           // [rows, cols], may be r: then spread is 1
  void* y = nullptr;            // [rows, cols]
  int64_t rows = 0;             // capacity
  int64_t cols = 0;
  const int64_t* live_rows = nullptr;  // device, [1], or null
  float eps = 1e-5f;
};
// Throws kUnsupported unless rows * cols * 2 or 4 bytes fit limits().line_bytes and config covers
// the columns.
void all_reduce_add_rms_norm(DeviceComm& comm, const ReduceNormParams& params,
                             const ReduceNormConfig& config, const LaunchContext& context);

// s_r = r_r + sum_p x_p[rows of r];  y[rows of r] = s_r / sqrt(mean(s_r^2) + eps) * w:
// ops::kReduceScatterAddRmsNormAllGather, a kernel between two barriers of flags. r and s are [rows
// of the rank, cols]; x and y must be symmetric. In config, spread is 1 and row_groups the number
// of CTAs. Throws as above, without a limit on rows.
void reduce_scatter_add_rms_norm_all_gather(DeviceComm& comm, const ReduceNormParams& params,
                                            const ReduceNormConfig& config,
                                            const LaunchContext& context);

// One-sided verbs in stream order, capturable: the base of schedules with explicit transfers. A
// signal raises `slot` (< kMaxStreamSignals) of `peer` by one, after everything before in the
// stream; a wait expects one more signal than this rank has waited for in (from, slot). Counts
// live on the device, so that a replayed graph goes on.
//
// dst, a local symmetric address, at `peer` = src, by copy engine.
void put(DeviceComm& comm, void* dst, int peer, const void* src, int64_t bytes,
         cudaStream_t stream);
void signal(DeviceComm& comm, int slot, int peer, const LaunchContext& context);
void wait(DeviceComm& comm, int slot, int from, const LaunchContext& context);

}  // namespace braid::cuda
