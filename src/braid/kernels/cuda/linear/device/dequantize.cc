#include "braid/kernels/cuda/linear/device/dequantize_launch.h"
#include "braid/kernels/cuda/linear/device/with_dtype.h"

namespace braid::cuda {

void dequantize(const DequantizeParams& params, LaunchContext context) {
  if (params.dtype == DType::i32) {
    fail(ErrorCode::kInvalidArgument, "dequantize: weights of {} (a float or block type)",
         name(params.dtype));
  }
  constexpr int64_t kMostColumns = int64_t{1} << 32;
  if (params.n < 0 || params.k < 1 || params.k > kMostColumns ||
      params.k % info(params.dtype).block_elems != 0) {
    fail(ErrorCode::kInvalidArgument, "dequantize: [{}, {}] of {} (whole blocks of {})", params.n,
         params.k, name(params.dtype), info(params.dtype).block_elems);
  }
  with_dtype(params.dtype, [&]<DType kType>() { launch_dequantize<kType>(params, context); });
}

}  // namespace braid::cuda
