#pragma once

#include "braid/kernels/cuda/comm/device/one_sided.h"

namespace braid::cuda {

// 32-bit words between the counters of two ranks: a cache line.
constexpr int kCounterWords = 16;
constexpr int kMaxOpened = 4;

struct SyncParams {
  MeetingPoint* own;               // null: nobody to meet
  uint32_t* flags[kMaxCommRanks];  // [members] this rank's flag at each
  int32_t members[kMaxCommRanks];  // of the world, without this rank
  int32_t num_members;
  int32_t num_opened;
  int32_t counted;                   // ranks with a line in each of the counters
  uint32_t* opened[kMaxOpened];      // [counted * kCounterWords] each
  const uint32_t* arrivals;          // likewise
  uint32_t expected[kMaxCommRanks];  // [world]; 0: nothing
  bool early;                        // kernels behind begin early, and wait for this one inside
};

struct TransferParams {
  int32_t n;
  int32_t peers[kMaxCommRanks];
  uint32_t* asked[kMaxCommRanks];     // null: by somebody before, or nothing moves
  uint32_t* done[kMaxCommRanks];      // null: nothing moves
  uint32_t* arrivals[kMaxCommRanks];  // this rank's counter at each peer, or null; of transfer
};

// One warp each.
using SyncKernel = void (*)(const CommView, const SyncParams);
using TransferKernel = void (*)(const CommView, const TransferParams);
SyncKernel sync_kernel_of();
TransferKernel ask_kernel_of();
TransferKernel wait_kernel_of();
TransferKernel transfer_kernel_of();  // asks, waits, adds to the counters

}  // namespace braid::cuda
