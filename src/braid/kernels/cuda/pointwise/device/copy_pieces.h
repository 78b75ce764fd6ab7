#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "braid/backend/cuda/launch.h"

namespace braid::cuda {

// `count` runs with `bytes` bytes each, `from_stride` apart at the source and `to_stride` apart at
// the destination. Addresses, strides and `bytes` are multiples of 2.
struct CopyPiece {
  const std::byte* from = nullptr;  // device
  std::byte* to = nullptr;          // device
  int64_t count = 0;
  int64_t bytes = 0;
  int64_t from_stride = 0;
  int64_t to_stride = 0;
};

// Bytes per access: the most among 16, 4 and 2 that the piece allows.
int copy_word(const CopyPiece& piece);

// Copies all pieces, a launch for each; no two overlap.
void copy_pieces(std::span<const CopyPiece> pieces, LaunchContext context);

}  // namespace braid::cuda
