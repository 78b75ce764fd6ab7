#include "braid/kernels/cuda/experts/device/expert_product.h"

#include "braid/base/error.h"
#include "braid/kernels/cuda/experts/device/expert_args.h"
#include "braid/kernels/cuda/linear/device/with_dtype.h"
#include "braid/ops/route.h"

namespace braid::cuda {

ExpertShape expert_shape(const ExpertProduct& p) {
  BRAID_CHECK(p.experts <= ops::kMaxExperts, "{} experts", p.experts);
  const auto whole = [](const void* data, int64_t bytes) {
    return reinterpret_cast<uintptr_t>(data) % 16 == 0 && bytes % 16 == 0;
  };
  ExpertShape shape{.dtype = p.w[0].dtype,
                    .experts = p.experts,
                    .n = p.n,
                    .k = p.k,
                    .rows = p.rows,
                    .rows_of_one = p.rows_of_one,
                    .gated = p.gated,
                    .by_begin = p.begin != nullptr};
  shape.aligned = p.k % 8 == 0 && whole(p.x, 2 * p.x_stride) && p.x_step % 8 == 0;
  for (int i = 0; i < (p.gated ? 2 : 1); ++i) {
    const ExpertWeight& w = p.w[i];
    BRAID_CHECK(w.dtype == shape.dtype, "gate and up of two dtypes");
    shape.aligned = shape.aligned && whole(w.data, is_quantized(w.dtype) ? 0 : w.row_bytes);
  }
  if (is_quantized(shape.dtype) && !shape.aligned) {
    fail(ErrorCode::kUnsupported, "experts: rows of x of {} elements beside weights in {}",
         p.x_stride, name(shape.dtype));
  }
  shape.y_aligned = whole(p.y, 2 * p.y_stride);
  return shape;
}

void prepare_expert_products() {
  if (code_capability() == 90) allow_tiles_smem();
}

void expert_product(const ExpertProduct& p, const ExpertConfig& config, LaunchContext context) {
  const ExpertShape shape = expert_shape(p);
  if (p.rows == 0 || p.n == 0) return;
  if (config.form == ExpertForm::tiles) {
    BRAID_CHECK(tiles_take(shape, {}) && config.ctas % 2 == 0, "tiles of {} with K = {}, {} ctas",
                name(shape.dtype), shape.k, config.ctas);
    return launch_expert_tiles(p, config.ctas, context);
  }
  const StreamArgs args = {.p = p, .ways = config.ways, .aligned = shape.aligned};
  with_dtype(shape.dtype,
             [&]<DType kType>() { launch_expert_stream<kType>(args, config.ctas, context); });
}

}  // namespace braid::cuda
