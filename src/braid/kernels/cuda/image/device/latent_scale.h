#pragma once

#include "braid/backend/cuda/launch.h"
#include "braid/ops/latent_scale.h"
#include "braid/tensor/view.h"

namespace braid::cuda {

// The op latent_scale; in f32.
struct LatentScaleParams {
  TensorView x;             // f32 or bf16 [T * H * W, C]
  TensorView scale, shift;  // f32 or bf16, both alike [Tz * h * w, C]
  TensorView y;             // as x
  ops::LatentScaleAttrs attrs;
};
void latent_scale(const LatentScaleParams& params, const LaunchContext& context);

}  // namespace braid::cuda
