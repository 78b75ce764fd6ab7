#include "braid/tensor/view.h"

namespace braid {

TensorView make_view(std::byte* data, DType dtype, const Shape& shape) {
  const int64_t cols = shape.rank() == 0 ? 1 : shape[-1];
  return {data, dtype, shape, bytes_of(dtype, cols)};
}

TensorView matrix(const TensorView& view, int64_t i) {
  BRAID_CHECK(view.shape.rank() == 3 && 0 <= i && i < view.shape[0], "matrix {} of {}", i,
              to_string(view.shape));
  std::byte* data = view.matrices ? view.matrices[i] + (view.data - view.matrices[0])
                                  : view.data + i * view.shape[1] * view.row_bytes;
  return {data, view.dtype, {view.shape[1], view.shape[2]}, view.row_bytes};
}

TensorView slice_matrix_rows(const TensorView& view, int64_t begin, int64_t end) {
  BRAID_CHECK(view.matrices && 0 <= begin && begin <= end && end <= view.shape[1],
              "rows {}..{} of each of {}", begin, end, to_string(view.shape));
  TensorView out = view;
  out.data = view.data + begin * view.row_bytes;
  out.shape[1] = end - begin;
  return out;
}

TensorView slice_rows(const TensorView& view, int64_t begin, int64_t end) {
  BRAID_CHECK(view.shape.rank() >= 1 && 0 <= begin && begin <= end && end <= view.shape[0],
              "rows {}..{} of {}", begin, end, to_string(view.shape));
  TensorView out = view;
  if (view.matrices) {
    out.matrices = view.matrices + begin;
    if (begin < end) out.data = view.matrices[begin] + (view.data - view.matrices[0]);
    out.shape[0] = end - begin;
    return out;
  }
  const int64_t inner =
      view.shape.rank() == 1 ? 1 : view.rows() / (view.shape[0] ? view.shape[0] : 1);
  out.data = view.shape.rank() == 1 ? view.data + bytes_of(view.dtype, begin)
                                    : view.data + begin * inner * view.row_bytes;
  out.shape[0] = end - begin;
  return out;
}

TensorView slice_cols(const TensorView& view, int64_t begin, int64_t end) {
  BRAID_CHECK(0 <= begin && begin <= end && end <= view.cols(), "columns {}..{} of {}", begin, end,
              to_string(view.shape));
  TensorView out = view;
  out.data = view.data + bytes_of(view.dtype, begin);
  out.shape[-1] = end - begin;
  return out;
}

}  // namespace braid
