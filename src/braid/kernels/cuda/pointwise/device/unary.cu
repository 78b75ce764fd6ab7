#include "braid/kernels/cuda/pointwise/device/unary.h"

#include "braid/kernels/cuda/activation.cuh"
#include "braid/kernels/cuda/pointwise/device/map.cuh"

namespace braid::cuda {
namespace {

using ops::UnaryFunction;

template <UnaryFunction kFunction>
struct Apply {
  static constexpr bool kBinary = false;
  __device__ static float apply(float x, float) {
    if constexpr (kFunction == UnaryFunction::quick_gelu) {
      constexpr float kSlope = 1.702f;
      return x * ptx::reciprocal(1 + ptx::exp2_approx(-ptx::kLog2E * kSlope * x));
    } else {
      return activate(kFunction == UnaryFunction::gelu_tanh, x);
    }
  }
};

template <UnaryFunction kFunction>
void launch(const UnaryParams& p, int vector, const RowsConfig& config,
            const LaunchContext& context) {
  with_type(p.x.dtype, [&]<class T>(T) {
    launch_map<Apply<kFunction>, T, T, T>(p.x, p.x, p.y, nullptr, vector, config, context);
  });
}

}  // namespace

RowsDesc unary_desc(const UnaryParams& p) {
  require_matrix("unary", "x", p.x, {DType::f32, DType::f16, DType::bf16});
  require_matrix("unary", "y", p.y, {p.x.dtype});
  require_shape("unary", "y", p.y, p.x.shape);
  const int64_t cols = p.x.cols();
  return {.rows = p.x.rows(), .cols = cols, .vector = vector_of(cols, {p.x, p.y})};
}

void unary(const UnaryParams& p, const RowsConfig& config, LaunchContext context) {
  const int vector = unary_desc(p).vector;
  switch (p.function) {
    case UnaryFunction::silu:
      return launch<UnaryFunction::silu>(p, vector, config, context);
    case UnaryFunction::gelu_tanh:
      return launch<UnaryFunction::gelu_tanh>(p, vector, config, context);
    case UnaryFunction::quick_gelu:
      return launch<UnaryFunction::quick_gelu>(p, vector, config, context);
  }
}

}  // namespace braid::cuda
