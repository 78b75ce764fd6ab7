#pragma once

#include "braid/kernels/cuda/host_device.h"
#include "braid/ops/launch_group.h"
#include "braid/program/program.h"

// Exchanges of few rows that run as one launch: push, sync, then the op that reads what came. Pure
// host code.
namespace braid::cuda {

// push, a sync that meets nobody, and merge_states or kv_write.
extern const JoinForm kExchange;

// Of the buffers for all ranks' rows. More bytes go by launches apart: the CTAs of one launch,
// which all run at once, are few.
constexpr int64_t kMaxExchangeBytes = 512 << 10;
constexpr int kExchangeThreads = 128;

// CTAs that share piece i if `pushers` CTAs take pieces by turns.
constexpr BRAID_HOST_DEVICE int shares_of_piece(int i, int pieces, int pushers) {
  return pushers <= pieces ? 1 : (pushers - 1 - i) / pieces + 1;
}

struct ExchangeConfig {
  int ctas = 1;     // at most one for each SM
  int pushers = 0;  // CTAs that store
};
// `piece_bytes`: of the largest piece; `rows`: of the last op, a warp's work each.
ExchangeConfig choose_exchange(int pieces, int64_t piece_bytes, int64_t rows, int sms);

// The ranks that exchange rows in the first three launches of a run; 0: these are no exchange.
// Equal on all ranks, also those without rows: decided by the buffers.
int exchange_ranks(const Program& program, const LaunchRun& run);

}  // namespace braid::cuda
