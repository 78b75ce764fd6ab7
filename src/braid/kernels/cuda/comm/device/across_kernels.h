#pragma once

#include "braid/kernels/cuda/comm/device/params.h"

namespace braid::cuda {

// Collectives between machines: work on a rank's own GPU, before and after the transfers.
struct AcrossParams {
  CollectiveOp op;
  int rank;
  int ranks;
  bool columns;        // all_gather by columns: y[t, columns of q] = x_q[t, :]
  const std::byte* x;  // own
  std::byte* y;
  std::byte* send;                     // [P, slot]; slot 0 has data for all peers alike
  const std::byte* received;           // [P, slot]
  int64_t slot;                        // bytes
  int64_t rows;                        // of the whole value
  int64_t row_bytes;                   // row of y, for columns
  const int64_t* live;                 // device, [1], or null
  int64_t begin_bytes[kMaxCommRanks];  // each rank's columns in a row of y
  int64_t part_bytes[kMaxCommRanks];
};

// Data for ranks of the same machine, stored into their memory.
struct PushParams {
  int n;                                 // rows of the grid
  std::byte* to[kMaxCommRanks];          // [n]
  const std::byte* from[kMaxCommRanks];  // [n]
  int64_t bytes[kMaxCommRanks];          // [n]
};

using AcrossKernel = void (*)(const AcrossParams);
using PushKernel = void (*)(const PushParams);
AcrossKernel pack_kernel_of();            // x into `send`
PushKernel push_kernel_of();              // grid [CTAs, n]
AcrossKernel place_kernel_of();           // arrived and own data into y
AcrossKernel sum_kernel_of(DType dtype);  // y = sum over ranks, in rank order

}  // namespace braid::cuda
