#pragma once

#include "braid/kernels/cuda/host_device.h"
#include "braid/ops/launch_group.h"
#include "braid/program/program.h"

// Handovers of few rows: a push, its sync and the op that reads what came, as one launch. Pure host
// code.
namespace braid::cuda {

// push, a sync that meets nobody, and merge_states or kv_write. The form of relays, kRelay, is
// declared beside JoinForm (ops/launch_group.h).
extern const JoinForm kHandover;

// Of the buffers for all ranks' rows. More bytes go by launches apart: the CTAs of one launch,
// which all run at once, are few.
constexpr int64_t kMaxHandoverBytes = 512 << 10;
constexpr int kHandoverThreads = 128;

// CTAs that share piece i if `pushers` CTAs take pieces by turns.
constexpr BRAID_HOST_DEVICE int shares_of_piece(int i, int pieces, int pushers) {
  return pushers <= pieces ? 1 : (pushers - 1 - i) / pieces + 1;
}

struct HandoverConfig {
  int ctas = 1;     // at most one for each SM
  int pushers = 0;  // CTAs that store
};
// `piece_bytes`: of the largest piece; `rows`: of the last op, a warp's work each.
HandoverConfig choose_handover(int pieces, int64_t piece_bytes, int64_t rows, int sms);

// The ranks that hand rows over in the first three launches of a run; 0: these are no handover.
// Equal on all ranks, also those without rows: decided by the buffers.
int handover_ranks(const Program& program, const LaunchRun& run);

}  // namespace braid::cuda
