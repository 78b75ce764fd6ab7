#include "braid/kernels/cuda/pointwise/device/add.h"

#include "braid/kernels/cuda/pointwise/device/map.cuh"

namespace braid::cuda {
namespace {

struct Sum {
  static constexpr bool kBinary = true;
  __device__ static float apply(float a, float b) { return a + b; }
};

struct Copy {
  static constexpr bool kBinary = false;
  __device__ static float apply(float a, float) { return a; }
};

template <class X, class Y>
void launch_convert(const ConvertParams& p, int vector, const RowsConfig& config,
                    const LaunchContext& context) {
  launch_map<Copy, X, X, Y>(p.x, p.x, p.y, p.rows, vector, config, context);
}

}  // namespace

RowsDesc add_desc(const AddParams& p) {
  require_matrix("add", "a", p.a, {DType::f32, DType::f16, DType::bf16});
  p.a.dtype == DType::f32 ? require_matrix("add", "b", p.b, {DType::f32, DType::bf16})
                          : require_matrix("add", "b", p.b, {p.a.dtype});
  require_matrix("add", "y", p.y, {p.a.dtype});
  require_shape("add", "b", p.b, p.a.shape);
  require_shape("add", "y", p.y, p.a.shape);
  const int64_t cols = p.a.cols();
  return {.rows = p.a.rows(), .cols = cols, .vector = vector_of(cols, {p.a, p.b, p.y})};
}

void add(const AddParams& p, const RowsConfig& config, LaunchContext context) {
  const int vector = add_desc(p).vector;
  if (p.b.dtype != p.a.dtype) {
    return launch_map<Sum, float, __nv_bfloat16, float>(p.a, p.b, p.y, p.rows, vector, config,
                                                        context);
  }
  with_type(p.a.dtype, [&]<class T>(T) {
    launch_map<Sum, T, T, T>(p.a, p.b, p.y, p.rows, vector, config, context);
  });
}

RowsDesc convert_desc(const ConvertParams& p) {
  require_matrix("convert", "x", p.x, {DType::f32, DType::f16, DType::bf16});
  require_matrix("convert", "y", p.y, {DType::f32, DType::f16, DType::bf16});
  require_shape("convert", "y", p.y, p.x.shape);
  const int64_t cols = p.x.cols();
  return {.rows = p.x.rows(), .cols = cols, .vector = vector_of(cols, {p.x, p.y})};
}

void convert(const ConvertParams& p, const RowsConfig& config, LaunchContext context) {
  const int vector = convert_desc(p).vector;
  with_types(p.x.dtype, p.y.dtype,
             [&]<class X, class Y>(X, Y) { launch_convert<X, Y>(p, vector, config, context); });
}

}  // namespace braid::cuda
