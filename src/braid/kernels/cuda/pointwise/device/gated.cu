#include "braid/kernels/cuda/pointwise/device/gated.h"

#include "braid/kernels/cuda/activation.cuh"
#include "braid/kernels/cuda/pointwise/device/map.cuh"

namespace braid::cuda {
namespace {

template <bool kGelu>
struct Gate {
  static constexpr bool kBinary = true;
  __device__ static float apply(float gate, float up) { return activate(kGelu, gate) * up; }
};

template <class F>
void launch(const GatedParams& p, int vector, const RowsConfig& config,
            const LaunchContext& context) {
  using bf16 = __nv_bfloat16;
  if (p.gate.dtype == DType::bf16) {
    return launch_map<F, bf16, bf16, bf16>(p.gate, p.up, p.y, p.rows, vector, config, context);
  }
  p.y.dtype == DType::f32
      ? launch_map<F, float, float, float>(p.gate, p.up, p.y, p.rows, vector, config, context)
      : launch_map<F, float, float, bf16>(p.gate, p.up, p.y, p.rows, vector, config, context);
}

}  // namespace

RowsDesc gated_desc(const GatedParams& p) {
  require_matrix("gated", "gate", p.gate, {DType::f32, DType::bf16});
  require_matrix("gated", "up", p.up, {p.gate.dtype});
  require_matrix("gated", "y", p.y, {DType::bf16, p.gate.dtype});
  require_shape("gated", "up", p.up, p.gate.shape);
  require_shape("gated", "y", p.y, p.gate.shape);
  const int64_t cols = p.gate.cols();
  return {.rows = p.gate.rows(), .cols = cols, .vector = vector_of(cols, {p.gate, p.up, p.y})};
}

void gated(const GatedParams& p, const RowsConfig& config, LaunchContext context) {
  const int vector = gated_desc(p).vector;
  p.activation == ops::Activation::silu ? launch<Gate<false>>(p, vector, config, context)
                                        : launch<Gate<true>>(p, vector, config, context);
}

}  // namespace braid::cuda
