#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "braid/fabric/peer/peer_fabric.h"
#include "braid/parallel/attention/lower_attention.h"
#include "braid/tensor/half.h"

// Sequence-parallel attention on a world of GPUs, and what one rank computes in f64 from the same
// bf16 inputs.
namespace braid::testing_sp_gpu {

int gpus();
// Ranks may share a GPU, but not its only queue.
bool has_gpus(const Topology& topology);

// Ranks on GPUs of their own, or together on one where there are too few.
fabric::PeerFabricConfig fabric_config(
    const Topology& topology, std::chrono::milliseconds device_deadline = std::chrono::seconds(3));

struct Result {
  std::vector<std::vector<bf16>> o, joint_o;  // [ranks] own rows packed
  std::vector<int64_t> bytes;                 // [ranks] that it asked for
};

struct RunConfig {
  std::vector<uint64_t> seeds = {1};  // of each step: the first is eager, the others are graphs
  std::string strategy = "sequence_parallel";
  int micro_batches = 1;
  bool by_stages = false;             // each stage a call of its own, whatever kernels take
  std::chrono::milliseconds late{0};  // rank 1 begins every step by so much later
  bool absent = false;                // rank 1 never comes
};

// The results of each step.
std::vector<Result> run(fabric::PeerFabric& fabric, const SequenceAttention& a,
                        const SequenceMesh& mesh, const RunConfig& config);

// Whether a query sees a key of a KV head, by positions.
using Sees = std::function<bool(int64_t query, int64_t key, int64_t kv_head)>;

// Every row of short results, every 7th of long ones, over the keys that `sees` names (none: all
// that the windows show).
void expect_exact(const SequenceAttention& a, const Result& got, uint64_t seed,
                  const Sees& sees = {});

// Scaled scores [q_heads, query, key] of the inputs of a seed, by position.
std::vector<double> all_scores(const SequenceAttention& a, uint64_t seed);

bool same_bits(const std::vector<std::vector<bf16>>& a, const std::vector<std::vector<bf16>>& b);

}  // namespace braid::testing_sp_gpu
