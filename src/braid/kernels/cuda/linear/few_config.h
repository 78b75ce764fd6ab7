#pragma once

#include "braid/kernels/cuda/linear/panel_config.h"

// Choice of the fastest kernel for few tokens. Pure host code.
namespace braid::cuda {

constexpr int kPanelLeastTokens = 2;    // fewest tokens for panels
constexpr int kPanelLeastOfBlocks = 5;  // the same with block weights

// Whether a panel is faster than the kernels for fewer tokens. With 2-byte weights from 2 tokens
// on: FMAs limit the stream kernel from there.
constexpr bool panel_pays(const PanelShape& shape) {
  const bool half = shape.dtype == DType::bf16 || shape.dtype == DType::f16;
  return shape.tokens >= (half ? kPanelLeastTokens : kPanelLeastOfBlocks);
}

}  // namespace braid::cuda
