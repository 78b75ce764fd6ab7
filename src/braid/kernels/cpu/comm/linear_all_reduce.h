#pragma once

#include <cstdint>
#include <string>

#include "braid/backend/cpu/team.h"
#include "braid/fabric/collectives/all_reduce.h"
#include "braid/kernels/cpu/linear/linear.h"

namespace braid::cpu {

// y = sum_p (x_p W_p^T + b_p), the same on every rank.
struct LinearAllReduceParams {
  const float* x = nullptr;     // [M, K], packed
  int64_t M = 0, K = 0;         // K may differ between ranks
  TensorView w;                 // [N, K], any float or block dtype
  const float* bias = nullptr;  // [N], or null
  float* y = nullptr;           // [M, N], packed; not x
};

// How the product is cut. Each tile [tile_rows, tile_cols] of y is on the wire while the next is
// computed.
struct LinearAllReduceConfig {
  fabric::AllReduceAlgorithm algorithm = fabric::AllReduceAlgorithm::two_shot;
  int64_t tile_rows = 0;
  int64_t tile_cols = 0;
  int lanes = 1;  // lanes of the Comm in use, a lane per thread
  bool operator==(const LinearAllReduceConfig&) const = default;
};
std::string to_string(const LinearAllReduceConfig& config);  // "two_shot, tiles of 128 x 512, ..."

// Inputs of the choice: equal on all ranks, because ranks must choose alike.
struct LinearAllReduceDesc {
  int64_t M = 0, N = 0;
  int ranks = 1;
  Link link;               // slowest of the group; 0 bytes/s: memory
  int64_t slot_bytes = 0;  // of the Comm
  int lanes = 1;           // the smaller of the Comm's lanes and a rank's threads
};

// For many tokens: tiles of rows, also cut along columns if rows alone would cost more or not fit
// the Comm's slots. If all rows of x meet each weight at once (M <= kMaxStreamRows): tiles of
// output columns. A single tile if nothing can be hidden. Pure.
LinearAllReduceConfig choose_linear_all_reduce(const LinearAllReduceDesc& desc);

// Bytes of scratch for M and any smaller M.
int64_t linear_all_reduce_scratch_bytes(int64_t M, int64_t N, int64_t K, DType dtype, int threads,
                                        LinearIsa isa);

// Called by every thread of the rank's team with the same arguments, as many on every rank, the
// input made and a team barrier since; y is there for all threads after the next team barrier. The
// bits are those of linear() followed by fabric::all_reduce(), whatever the tiles and lanes. Throws
// kInvalidArgument where a tile does not fit the slots, kDeadline and kAborted.
void linear_all_reduce(fabric::Comm& comm, const Team& team, const LinearAllReduceParams& params,
                       const LinearAllReduceConfig& config, LinearIsa isa, std::byte* scratch);

}  // namespace braid::cpu
