#pragma once

#include <cstdint>
#include <string>

#include "braid/tensor/dtype.h"

// Division of a product of very few tokens with bf16 weights. Memory is fastest for long runs: a
// warp reads 512 neighbouring bytes of a row at once, and the warps of a CTA share the CTA's rows
// in such chunks, evenly, across row ends. Pure host code.
namespace braid::cuda {

constexpr int kStreamWarps = 8;
constexpr int kStreamChunk = 256;  // elements per read of a warp
constexpr int kStreamMaxTokens = 4;

struct StreamShape {
  DType dtype = DType::bf16;  // the weights'
  bool aligned = true;        // every row starts at a multiple of 16 bytes
  bool gated = false;
  int64_t k = 0;
  int64_t units = 0;  // rows over all parts, or pairs in a gated product
  int tokens = 1;     // capacity
};

struct StreamConfig {
  int ctas = 0;
  int rows = 0;          // most weight rows per CTA
  int shared_bytes = 0;  // for row starts, x, and the warps' sums
  bool operator==(const StreamConfig&) const = default;
};

// Whether the kernel computes the shape: bf16, K a multiple of 8, and x fits beside other CTAs'.
bool stream_takes(const StreamShape& shape);
// For a shape that stream_takes, with at least a unit.
StreamConfig choose_stream(const StreamShape& shape, int num_sms);

// Bytes of a token's x in shared memory: whole chunks, padded with zeros.
constexpr int64_t stream_pitch(int64_t k) {
  return (k + kStreamChunk - 1) / kStreamChunk * kStreamChunk * 2;
}

// Bytes of a CTA's table of row starts.
constexpr int stream_starts_bytes(int rows) {
  return (rows * 8 + 127) / 128 * 128;
}

std::string to_string(const StreamConfig& config);  // "stream 264 x 16 rows"

}  // namespace braid::cuda
