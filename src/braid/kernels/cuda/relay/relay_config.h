#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "braid/tensor/dtype.h"

// Choice of a relay: a decode step with one token in a single launch (docs/kernels.md). Host code.
namespace braid::cuda {

constexpr int kRelayWarps = 8;                // multiplying warps of a CTA
constexpr int kRelayProducers = 2;            // copying warps of a CTA, in turns
constexpr int kRelayInFlight = 4;             // copies of a producer under way
constexpr int kRelayInFlightOverRanks = 3;    // the same with words from other ranks
constexpr int kRelayInFlightBesideWords = 2;  // while words are on theirs
constexpr int kRelaySlotBytes = 8192;         // bytes per copy: weight rows, parts of rows, or keys
constexpr int kRelayMaxSlots = 28;
constexpr int kRelayMaxGroup = 8;        // query heads of a KV head
constexpr int kRelayMaxNorm = 8192;      // elements of a normed row, kept in registers
constexpr int kRelayFewNorm = 4096;      // the same for a shorter kernel
constexpr int kRelayMinSteps = 4;        // fewest steps in a launch that pays
constexpr int kRelayLongRows = 1 << 14;  // most rows in a step of a linear in f32
constexpr int kRelayWeights = 3;         // sharing x

// Block rows come as tiles: a slot holds a chunk from each of 16 rows, so products share x.
constexpr int kRelayTileRows = 16;

// Whether relays take such weights: bf16 or blocks (tensor/quant.h).
bool relay_takes(DType weights);

// Bytes of x in shared memory: bf16 or, for blocks, planes with sums and scales
// (device/planes.cuh).
constexpr int64_t relay_x_bytes(int64_t k, bool blocks) {
  return (2 * k + (blocks ? k / 16 * 4 + k / 32 * 4 : 0) + 15) / 16 * 16;
}

// y = x W^T, or the product of a gated pair.
struct RelayLinearShape {
  int64_t k = 0;
  int64_t units = 0;  // rows of all weights on x, or pairs in a gated product
  bool gated = false;
  bool normed = false;
  bool summed = false;  // the input, over ranks
  // Dtype of each weight: all bf16, or all blocks; absent weights are bf16.
  std::array<DType, kRelayWeights> weights = {DType::bf16, DType::bf16, DType::bf16};
};

struct RelayAttentionShape {
  int head_dim = 0;
  int group = 1;  // query heads per KV head
  int64_t kv_heads = 0;
  int64_t page_size = 0;
  bool operator==(const RelayAttentionShape&) const = default;
};

struct RelayDevice {
  int compute_capability = 90;  // 10 * major + minor
  int num_sms = 132;
  int64_t smem_per_cta = 232448;
};

struct RelayConfig {
  int ctas = 0;  // a CTA on each SM, all at once
  int slots = 0;
  int x_bytes = 0;
  int sums = 0;      // most sums of a linear
  int head_dim = 0;  // 0: no attention
  int group = 0;
  int norm = kRelayFewNorm;  // elements in the instance's registers
  bool ranked = false;       // ranks share steps
  bool blocks = false;       // some weights are
  int shared_bytes = 0;
  bool operator==(const RelayConfig&) const = default;
};

// Copies that a producer may have under way with `slots` slots. After slot m a warp waits for slot
// m + kRelayWarps by the phase of its place. The place's previous copy, a ring's length earlier,
// must be complete by then; otherwise the wait would take the older phase for the new one.
constexpr int relay_in_flight(int slots) {
  return (slots - kRelayWarps) / kRelayProducers;
}

// Keys in a slot: K of a head, then V.
constexpr int relay_keys(int head_dim) {
  return kRelaySlotBytes / (4 * head_dim);
}

// Keys brought by a copy, all from one page.
constexpr int relay_box(int head_dim, int64_t page_size) {
  return page_size < relay_keys(head_dim) ? static_cast<int>(page_size) : relay_keys(head_dim);
}

// Whether a launch has room for the step, on as many CTAs as it has pairs for.
bool relay_takes(const RelayLinearShape& shape, const RelayDevice& device);
bool relay_takes(const RelayAttentionShape& shape, const RelayDevice& device);

// All attention of a launch has one shape. Returns nothing if too few steps fit, or if the steps do
// not fit together.
std::optional<RelayConfig> choose_relay(std::span<const RelayLinearShape> linears,
                                        std::span<const RelayAttentionShape> attention,
                                        const RelayDevice& device);

// Rows in each step of a linear with too many rows for a single step. `rows` and all parts are
// even, and no part is small.
std::vector<int32_t> relay_parts(int32_t rows);

std::string to_string(const RelayConfig& config);  // "relay 132 x 24 slots, heads of 4 x 128"

}  // namespace braid::cuda
