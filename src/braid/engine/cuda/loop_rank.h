#pragma once

#include "braid/backend/cuda/cuda_replay.h"
#include "braid/engine/cuda/device_sampler.h"
#include "braid/engine/rank.h"
#include "braid/fabric/fabric.h"
#include "braid/runtime/executor.h"

namespace braid::cuda {

// A rank's part of a loop.
struct LoopRank {
  Rank* rank = nullptr;
  CudaBackend* backend = nullptr;
  DeviceSampler* sampler = nullptr;
  Executor* prompt = nullptr;  // holds logits of the prompts' last tokens
  Executor* step = nullptr;    // of a CudaLoop: computes a token for each sequence; inputs are
                               // written for the first tokens after the prompts
};

CudaReplay& replay_of(Executor& executor);

// Calls next(). Of several ranks' errors the first one is thrown, and not a rank's later view.
template <class Next>
auto with_first_error(const fabric::Fabric& fabric, Next&& next) {
  try {
    return next();
  } catch (...) {
    fabric.rethrow_error();
    throw;
  }
}

// Seconds that this thread has computed.
double thread_seconds();

}  // namespace braid::cuda
