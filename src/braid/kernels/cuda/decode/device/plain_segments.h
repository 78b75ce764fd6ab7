#pragma once

#include "braid/backend/cuda/launch.h"
#include "braid/kernels/cuda/attention/desc.h"

namespace braid::cuda {

// Segment attention (attention/desc.h) for f32, and for head dims without a fast kernel:
// contiguous segments of `batch` sequences, states in f32, head_dim_qk = head_dim_v up to
// kMaxPlainHeadDim. A warp per query and head reads keys one by one: for small models. Alignment
// does not matter. Fails with kUnsupported on anything else: also on a segment's starts, offsets,
// lse or lengths.
void plain_segments(const AttentionDesc& desc, const AttentionParams& params,
                    LaunchContext context);

// Fails as the launch would, for any segments.
void verify_plain_segments(const AttentionDesc& desc);

// Loads the kernel on the current device: its first launch must not, while another rank waits.
void load_plain_segments(DType dtype);

}  // namespace braid::cuda
