#pragma once

#include "braid/backend/cuda/launch.h"
#include "braid/kernels/cuda/attention/desc.h"

namespace braid::cuda {

// Segment attention (attention/desc.h) of head dims that no fast kernel takes: contiguous segments
// of `batch` sequences, states in f32, head_dim_qk = head_dim_v up to kMaxPlainHeadDim. A warp a
// query and head, which reads keys one by one: for small models. Alignment does not matter. Fails
// with kUnsupported on anything else.
void plain_segments(const AttentionDesc& desc, const AttentionParams& params,
                    LaunchContext context);

// Fails as the launch would.
void verify_plain_segments(const AttentionDesc& desc);

}  // namespace braid::cuda
