#pragma once

#include "braid/kernels/cuda/comm/device/comm_view.h"
#include "braid/kernels/cuda/comm/push_config.h"

namespace braid::cuda {

// Rows, in words of 16 bytes.
struct RowsPiece {
  uint4* dst;
  const uint4* src;
  int64_t dst_stride;
  int64_t src_stride;
  uint32_t row_words;
  uint32_t rows;
};

struct PushRowsParams {
  RowsPiece pieces[kMaxPushPieces];
  int32_t num_pieces;
  int32_t num_peers;
  uint32_t* ended;                    // CTAs that are done; zero between launches
  uint32_t* arrivals[kMaxCommRanks];  // [peers] this rank's counter at each
  bool early;                         // kernels behind begin early, and wait for this one inside
};

// For all pieces: dst[row * dst_stride + word] = src[row * src_stride + word], by all CTAs or, with
// no more CTAs than pieces, by a CTA each; then, once: arrivals[peer] += 1, with release at system
// scope.
constexpr int kPushThreads = 512;
using PushRowsKernel = void (*)(const CommView, const PushRowsParams);
PushRowsKernel push_rows_kernel_of();

}  // namespace braid::cuda
