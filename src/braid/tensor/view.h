#pragma once

#include <cstddef>
#include <cstdint>

#include "braid/tensor/dtype.h"
#include "braid/tensor/half.h"
#include "braid/tensor/shape.h"

namespace braid {

// A non-owning matrix-like view: rows of the last dimension, contiguous inside a row, rows
// `row_bytes` apart (all outer dimensions are packed over each other). Whoever made the bytes owns
// them; a view of a mapped file is read-only by convention.
//
// A view of three dimensions may be a list of matrices that lie apart, as the experts of a layer do
// in a file: then `matrices` says where each begins, and row() reaches into the first alone.
struct TensorView {
  std::byte* data = nullptr;
  DType dtype = DType::f32;
  Shape shape;
  int64_t row_bytes = 0;
  // [shape[0]], or null. A slice moves `data` alone: each matrix moves by as many bytes as the
  // first.
  std::byte* const* matrices = nullptr;

  int64_t rows() const { return shape.rows(); }
  int64_t cols() const { return shape.rank() == 0 ? 1 : shape[-1]; }
  std::byte* row(int64_t i) const { return data + i * row_bytes; }
  template <class T>
  T* row_as(int64_t i) const {
    return reinterpret_cast<T*>(row(i));
  }
  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(data);
  }
  bool contiguous() const { return row_bytes == bytes_of(dtype, cols()); }
  // Bytes that the elements themselves take, without gaps between rows.
  int64_t bytes() const { return rows() * bytes_of(dtype, cols()); }
};

// Matrix i of a three-dimensional view, as a two-dimensional view.
TensorView matrix(const TensorView& view, int64_t i);

// Rows [begin, end) of each matrix in a three-dimensional view with separate matrices.
TensorView slice_matrix_rows(const TensorView& view, int64_t begin, int64_t end);

// A packed view over `data`.
TensorView make_view(std::byte* data, DType dtype, const Shape& shape);

// Rows [begin, end) of dimension 0.
TensorView slice_rows(const TensorView& view, int64_t begin, int64_t end);

// Columns [begin, end) of the last dimension; both are multiples of the dtype's block.
TensorView slice_cols(const TensorView& view, int64_t begin, int64_t end);

}  // namespace braid
