#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "braid/tensor/dtype.h"

// How the layers of a decode step of one token run in one launch (docs/kernels.md). Pure host code.
namespace braid::cuda {

constexpr int kRelayWarps = 8;                // of a CTA, that multiply
constexpr int kRelayProducers = 2;            // warps of a CTA that issue copies, in turns
constexpr int kRelayInFlight = 4;             // copies of a producer on their way
constexpr int kRelayInFlightOverRanks = 3;    // the same where words come from other ranks, too
constexpr int kRelayInFlightBesideWords = 2;  // while words are on theirs
constexpr int kRelaySlotBytes = 8192;  // of a copy: rows of weights or parts of them, or keys
constexpr int kRelayMaxSlots = 28;
constexpr int kRelayMaxGroup = 8;    // query heads of a KV head
constexpr int kRelayMaxNorm = 8192;  // elements of a normed row, which threads keep in registers
constexpr int kRelayFewNorm = 4096;  // with which the kernel is shorter
constexpr int kRelayMinSteps = 4;    // of a launch, for which it pays
constexpr int kRelayLongRows = 1 << 14;  // of a step, at most, of a linear in f32
constexpr int kRelayWeights = 3;         // that share x

// Rows of blocks come as tiles, a chunk of each of 16 rows in a slot: products of them share x.
constexpr int kRelayTileRows = 16;

// Whether weights may be so: bf16 or blocks (tensor/quant.h).
bool relay_takes(DType weights);

// Bytes of x in shared memory: bf16 or, for blocks, planes with sums and scales
// (device/planes.cuh).
constexpr int64_t relay_x_bytes(int64_t k, bool blocks) {
  return (2 * k + (blocks ? k / 16 * 4 + k / 32 * 4 : 0) + 15) / 16 * 16;
}

// y = x W^T, or the product of a gated pair.
struct RelayLinearShape {
  int64_t k = 0;
  int64_t units = 0;  // rows of all weights that share x, or pairs of a gate's
  bool gated = false;
  bool normed = false;
  bool summed = false;  // its input, over ranks
  // Of each weight: all bf16, or all blocks. Those that there are not are bf16.
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
  int ctas = 0;  // one on an SM, all at the same time
  int slots = 0;
  int x_bytes = 0;
  int sums = 0;      // of a linear, at most
  int head_dim = 0;  // 0: no attention
  int group = 0;
  int norm = kRelayFewNorm;  // elements that the instance has registers for
  bool ranked = false;       // ranks share steps
  bool blocks = false;       // some weights are
  int shared_bytes = 0;
  bool operator==(const RelayConfig&) const = default;
};

// Copies of a producer that may be on their way with so many slots. A warp that has taken slot m
// out waits for m + kRelayWarps by its place's phase. What was last put there, a ring's length
// before, must have come by then, or the phase before that would be taken for it.
constexpr int relay_in_flight(int slots) {
  return (slots - kRelayWarps) / kRelayProducers;
}

// Keys that share a slot: K of a head, then V.
constexpr int relay_keys(int head_dim) {
  return kRelaySlotBytes / (4 * head_dim);
}

// Of these, that come by one copy: they lie in one page.
constexpr int relay_box(int head_dim, int64_t page_size) {
  return page_size < relay_keys(head_dim) ? static_cast<int>(page_size) : relay_keys(head_dim);
}

// Whether a launch has room for the step, on as many CTAs as it has pairs for.
bool relay_takes(const RelayLinearShape& shape, const RelayDevice& device);
bool relay_takes(const RelayAttentionShape& shape, const RelayDevice& device);

// All attention of a launch has one shape. Nothing where it takes too few steps to pay, or where
// the steps do not fit together.
std::optional<RelayConfig> choose_relay(std::span<const RelayLinearShape> linears,
                                        std::span<const RelayAttentionShape> attention,
                                        const RelayDevice& device);

// How many of a linear's rows, an even number, are each step's where they are too many for one:
// even numbers, and none of but a few.
std::vector<int32_t> relay_parts(int32_t rows);

std::string to_string(const RelayConfig& config);  // "relay 132 x 24 slots, heads of 4 x 128"

}  // namespace braid::cuda
