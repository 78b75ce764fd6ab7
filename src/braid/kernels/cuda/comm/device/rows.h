#pragma once

#include <vector>

#include "braid/backend/cuda/launch.h"
#include "braid/kernels/cuda/comm/device/device_comm.h"
#include "braid/tensor/view.h"

// Row operations beside collectives: columns owned by ranks, and a rank's own rows.
namespace braid::cuda {

// y_q[t, begin_r + j] = x_r[t, j] for every q and j < columns of x_r: each rank stores its columns
// into every rank's y, between two barriers of flags. y is symmetric, elements have 2 or 4 bytes.
struct GatherColumnsParams {
  TensorView x;                        // [T, C_r]
  TensorView y;                        // [T, C]
  int64_t begin = 0;                   // of this rank's columns
  std::vector<Range> parts;            // [P] for all ranks; only with ranks on several machines
  const int64_t* live_rows = nullptr;  // device
};
// As for collectives (collectives.h).
void prepare_gather_columns(DeviceComm& comm, const GatherColumnsParams& params);
void gather_columns(DeviceComm& comm, const GatherColumnsParams& params,
                    const LaunchContext& context);

// y = x[rows of r], rows even_part(live, P, r) among the live rows; on this rank alone.
struct TakeShardParams {
  TensorView x;  // [T, C]
  TensorView y;  // [ceil(T / P), C]
  int ranks = 1;
  int rank = 0;
  const int64_t* live_rows = nullptr;  // device
};
void take_shard(const TakeShardParams& params, const LaunchContext& context);

}  // namespace braid::cuda
