#pragma once

#include "braid/kernels/cuda/comm/device/params.h"

// Kernels by their compiled variant. All are launched as <<<config.ctas, config.threads>>> on every
// rank in the group, in equal order.
namespace braid::cuda {

using LineReduceKernel = void (*)(const CommView, const ReduceParams);
using LineMoveKernel = void (*)(const CommView, const MoveParams);
using DirectReduceKernel = void (*)(const CommView, const ReduceParams);
using DirectMoveKernel = void (*)(const CommView, const MoveParams);
using BarrierKernel = void (*)(const CommView);
using StreamSignalKernel = void (*)(const CommView, int slot, int peer);

LineReduceKernel line_reduce_kernel_of(DType dtype, int line_data, bool scatter);
// For calls with lines_at_once (comm_config.h): lines with 12 bytes of data, or bare lines with 16.
LineReduceKernel line_reduce_once_kernel_of(DType dtype, int line_data, int lines, int ranks);
LineMoveKernel line_move_kernel_of(int line_data);
DirectReduceKernel direct_reduce_kernel_of(DType dtype, int ranks, int unroll);
DirectMoveKernel direct_move_kernel_of(int unroll);
BarrierKernel barrier_kernel_of();
StreamSignalKernel stream_signal_kernel_of();
StreamSignalKernel stream_wait_kernel_of();

}  // namespace braid::cuda
