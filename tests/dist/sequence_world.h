#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <vector>

#include "braid/backend/cpu/cpu_backend.h"
#include "braid/fabric/local/run_ranks.h"
#include "braid/fabric/symmetric_memory.h"
#include "braid/kernels/cpu/register.h"
#include "braid/parallel/attention/lower_attention.h"
#include "braid/runtime/executor.h"
#include "braid/schedule/plan_schedules.h"
#include "braid/schedule/strategies/registry.h"
#include "dist/fabric_testing.h"
#include "dist/sequence_inputs.h"

// Sequence-parallel attention on a world of threads, and what one rank computes in f64.
namespace braid::testing_sp {

// Element (sequence, position, head, d) of the whole tensor.
inline float element(uint64_t seed, Tensor tensor, int64_t b, int64_t position, int64_t head,
                     int64_t d) {
  return 2 * fabric::float_of(seed * 16 + tensor, static_cast<int>(b),
                              ((position * 64) + head) * 512 + d);
}

// O of one query row, [D] in f64: all keys, joint ones at positions 0..joint_kv.
std::vector<double> reference_row(const SequenceAttention& a, uint64_t seed, bool joint, int64_t b,
                                  int64_t position, int64_t head);

struct WorldConfig {
  std::string strategy = "sequence_parallel";
  int threads = 1;
  int micro_batches = 1;
  int steps = 1;
  fabric::LinkModel links;
  fabric::Duration deadline = std::chrono::seconds(30);
  uint64_t seed = 1;
  std::vector<const KernelCatalog*> kernels = {};                    // as of AttentionDivision
  bool queries = false;                                              // likewise
  std::function<void(fabric::Endpoint&, cpu::KernelTable&)> adjust;  // kernels, before binding
};

struct WorldResult {
  std::vector<std::vector<float>> o;        // [ranks] as bytes of the output, own rows packed
  std::vector<std::vector<float>> joint_o;  // [ranks]
  std::vector<std::vector<fabric::TrafficEntry>> traffic;  // [ranks], of the last step
  std::vector<Schedule> schedules;
};

WorldResult run_world(const SequenceAttention& a, const SequenceMesh& mesh,
                      const WorldConfig& config);

// Every row of every rank against the reference; `every` > 1 samples rows.
void expect_exact(const SequenceAttention& a, const WorldResult& got, uint64_t seed);

// Bytes that a rank asked for over a class of links, by pulls or pushes.
int64_t bytes(const std::vector<fabric::TrafficEntry>& entries, LinkClass link);

}  // namespace braid::testing_sp
