#pragma once

#include "braid/backend/cuda/launch.h"
#include "braid/kernels/cuda/pointwise/device/operand.h"
#include "braid/ops/relative_bias.h"
#include "braid/ops/timestep.h"

// Small tables that a network makes from a few numbers, once per request.
namespace braid::cuda {

// The op timestep_embedding: t f32 [n] -> y f32 [n, dim]. Intermediates are rounded to f32.
void timestep_embedding(const TensorView& t, const TensorView& y,
                        const ops::TimestepEmbeddingAttrs& attrs, LaunchContext context);

// The op relative_bias: table f32, f16 or bf16 [buckets, H] -> y f32 [H, L, L]. `bucket_of`, on the
// device, i32 [2 L - 1], has the bucket of distance i - (L - 1).
void relative_bias(const TensorView& table, const int32_t* bucket_of, const TensorView& y,
                   LaunchContext context);

}  // namespace braid::cuda
