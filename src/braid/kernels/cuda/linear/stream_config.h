#pragma once

#include <cstdint>
#include <string>

#include "braid/tensor/dtype.h"

// How a product of very few tokens with bf16 weights is cut up. Memory gives its best to long runs:
// a warp reads 512 neighbouring bytes of a row at once, and the warps of a CTA share its rows in
// such chunks, evenly, wherever a row ends. Pure host code.
namespace braid::cuda {

constexpr int kStreamWarps = 8;
constexpr int kStreamChunk = 256;  // elements that a warp reads at once
constexpr int kStreamMaxTokens = 4;

struct StreamShape {
  DType dtype = DType::bf16;  // of the weights
  bool aligned = true;        // every row starts at a multiple of 16 bytes
  bool gated = false;
  int64_t k = 0;
  int64_t units = 0;  // rows of all parts, or pairs of a gate's
  int tokens = 1;     // capacity
};

struct StreamConfig {
  int ctas = 0;
  int rows = 0;          // of weights, that a CTA has at most
  int shared_bytes = 0;  // where rows begin, x, and the warps' sums
  bool operator==(const StreamConfig&) const = default;
};

// Whether the kernel computes it: bf16, K a multiple of 8, and x fits beside other CTAs'.
bool stream_takes(const StreamShape& shape);
// Of a shape that it takes, with at least one unit.
StreamConfig choose_stream(const StreamShape& shape, int num_sms);

// Bytes of a token's x in shared memory: whole chunks, padded with zeros.
constexpr int64_t stream_pitch(int64_t k) {
  return (k + kStreamChunk - 1) / kStreamChunk * kStreamChunk * 2;
}

// Of the table of where a CTA's rows begin.
constexpr int stream_starts_bytes(int rows) {
  return (rows * 8 + 127) / 128 * 128;
}

std::string to_string(const StreamConfig& config);  // "stream 264 x 16 rows"

}  // namespace braid::cuda
