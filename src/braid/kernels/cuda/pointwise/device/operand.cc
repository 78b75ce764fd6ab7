#include "braid/kernels/cuda/pointwise/device/operand.h"

#include <algorithm>
#include <string>

#include "braid/base/error.h"
#include "braid/base/math.h"

namespace braid::cuda {
namespace {

std::string names(std::initializer_list<DType> dtypes) {
  std::string out;
  for (DType d : dtypes) out += fmt::format("{}{}", out.empty() ? "" : ", ", name(d));
  return out;
}

}  // namespace

void require_matrix(std::string_view op, std::string_view operand, const TensorView& view,
                    std::initializer_list<DType> dtypes) {
  if (!view.data || view.shape.rank() == 0) {
    fail(ErrorCode::kInvalidArgument, "{}: no {}", op, operand);
  }
  if (std::find(dtypes.begin(), dtypes.end(), view.dtype) == dtypes.end()) {
    fail(ErrorCode::kUnsupported, "{}: {} is {}; {} are supported", op, operand, name(view.dtype),
         names(dtypes));
  }
  const int64_t unit = info(view.dtype).block_bytes;
  if (!is_quantized(view.dtype) &&
      (view.row_bytes % unit != 0 || reinterpret_cast<uintptr_t>(view.data) % unit != 0)) {
    fail(ErrorCode::kInvalidArgument, "{}: rows of {} start {} bytes apart at {}; {} takes {}", op,
         operand, view.row_bytes, fmt::ptr(view.data), name(view.dtype), unit);
  }
}

void require_shape(std::string_view op, std::string_view operand, const TensorView& view,
                   const Shape& shape) {
  if (view.shape == shape) return;
  fail(ErrorCode::kInvalidArgument, "{}: {} is {}, not {}", op, operand, to_string(view.shape),
       to_string(shape));
}

void unsupported_types(std::string_view op, std::initializer_list<DType> dtypes) {
  fail(ErrorCode::kUnsupported, "{}: no kernel for {}", op, names(dtypes));
}

bool rows_aligned(std::initializer_list<TensorView> views, int elems) {
  return std::all_of(views.begin(), views.end(), [&](const TensorView& view) {
    if (!view.data) return true;
    const int64_t bytes = std::min<int64_t>(16, bytes_of(view.dtype, elems));
    return view.row_bytes % bytes == 0 && reinterpret_cast<uintptr_t>(view.data) % bytes == 0;
  });
}

int vector_of(int64_t cols, std::initializer_list<TensorView> views) {
  const bool wide = std::any_of(views.begin(), views.end(), [](const TensorView& view) {
    return view.data && view.dtype == DType::f32;
  });
  for (int elems : {8, 4}) {
    if (elems == 8 && wide) continue;
    if (cols % elems == 0 && rows_aligned(views, elems)) return elems;
  }
  return 1;
}

dim3 map_grid(std::string_view op, const RowsConfig& config, int64_t rows, int64_t words,
              int64_t cols) {
  constexpr int64_t kMostColumns = 65535;
  const bool fits = config.chunks >= 1 && config.lanes * config.rows_per_cta <= 512 &&
                    ceil_div(words, config.lanes * config.chunks) <= kMostColumns;
  if (!fits) {
    fail(ErrorCode::kUnsupported, "{}: {} for rows of {}", op, to_string(config), cols);
  }
  return dim3(static_cast<unsigned>(ceil_div(rows, config.rows_per_cta)),
              static_cast<unsigned>(ceil_div(words, config.lanes * config.chunks)));
}

void require_norm_config(std::string_view op, const RowsDesc& desc, const RowsConfig& config) {
  const int64_t held = int64_t{config.lanes} * config.chunks * desc.vector;
  const bool lanes_fit = config.lanes <= 32 ? (config.lanes & (config.lanes - 1)) == 0
                                            : config.lanes % 32 == 0 && config.rows_per_cta == 1;
  if (!lanes_fit || config.lanes * config.rows_per_cta > 1024 ||
      config.lanes * config.rows_per_cta % 32 != 0 || (config.chunks > 0 && held < desc.cols)) {
    fail(ErrorCode::kInvalidArgument, "{}: {} for groups of {}", op, to_string(config), desc.cols);
  }
}

}  // namespace braid::cuda
