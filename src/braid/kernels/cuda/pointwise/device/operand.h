#pragma once

#include <vector_types.h>

#include <cstdint>
#include <initializer_list>
#include <string_view>
#include <type_traits>

#include "braid/kernels/cuda/pointwise/config.h"
#include "braid/tensor/view.h"

// Shared by the launchers in this folder: operands as kernels take them, and their checks.
//
// A launcher takes TensorViews of device memory: a [T, C] view's rows are `row_bytes` apart, and T
// is the capacity. `rows` is device memory too: the live rows, at most T, read when the kernel
// runs; null means T. Rows past the live ones are left as they are.
namespace braid::cuda {

// A matrix with `stride` elements from row to row.
template <class T>
struct Rows {
  T* data = nullptr;
  int64_t stride = 0;
};

template <class T>
Rows<T> rows_of(const TensorView& view) {
  return {view.as<T>(), view.row_bytes / static_cast<int64_t>(sizeof(T))};
}

// Fails with kInvalidArgument or kUnsupported, naming op, operand, actual and allowed form.
void require_matrix(std::string_view op, std::string_view operand, const TensorView& view,
                    std::initializer_list<DType> dtypes);
void require_shape(std::string_view op, std::string_view operand, const TensorView& view,
                   const Shape& shape);
[[noreturn]] void unsupported_types(std::string_view op, std::initializer_list<DType> dtypes);

// Whether all rows in the views start at multiples of `elems` elements' bytes, at most 16.
bool rows_aligned(std::initializer_list<TensorView> views, int elems);

// The largest among 8, 4 and 1 elements (8 only without f32 operands) that divides `cols` and suits
// the operands' addresses.
int vector_of(int64_t cols, std::initializer_list<TensorView> views);

// The grid of a map over `rows` rows of `words` accesses: [rows, columns] in CTAs. Fails with
// kUnsupported, naming op, config and `cols`, if no launch is large enough.
dim3 map_grid(std::string_view op, const RowsConfig& config, int64_t rows, int64_t words,
              int64_t cols);

// Fails with kInvalidArgument, naming op and config, if a norm's config does not suit its groups.
void require_norm_config(std::string_view op, const RowsDesc& desc, const RowsConfig& config);

constexpr int kNumSms = 132;  // an H100's or H200's, for configs that may assume a number

}  // namespace braid::cuda
