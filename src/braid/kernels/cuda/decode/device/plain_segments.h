#pragma once

#include "braid/backend/cuda/launch.h"
#include "braid/kernels/cuda/attention/desc.h"

namespace braid::cuda {

// Segment attention (attention/desc.h) of head dims that no fast kernel takes, and of f32:
// contiguous segments of `batch` sequences, states in f32, head_dim_qk = head_dim_v up to
// kMaxPlainHeadDim. A warp a query and head, which reads keys one by one: for small models.
// Alignment does not matter. Fails with kUnsupported on anything else: also starts, offsets, lse or
// lengths of a segment.
void plain_segments(const AttentionDesc& desc, const AttentionParams& params,
                    LaunchContext context);

// Fails as the launch would, for any segments.
void verify_plain_segments(const AttentionDesc& desc);

// Loads the kernel on the current device: its first launch must not, while another rank waits.
void load_plain_segments(DType dtype);

}  // namespace braid::cuda
