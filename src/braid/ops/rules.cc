#include "braid/ops/rules.h"

#include <algorithm>

namespace braid::ops {

void require_rank(std::string_view op, std::string_view operand, const ValueType& type, int rank) {
  if (type.shape.rank() != rank) {
    fail(ErrorCode::kInvalidArgument, "{}: {} is {}, wanted {} dimensions", op, operand,
         to_string(type), rank);
  }
}

void require_dim(std::string_view op, std::string_view operand, const ValueType& type, int dim,
                 int64_t want) {
  if (type.shape[dim] != want) {
    fail(ErrorCode::kInvalidArgument, "{}: {} is {}, wanted {} in dimension {}", op, operand,
         to_string(type), want, dim);
  }
}

void require_dtype(std::string_view op, std::string_view operand, const ValueType& type,
                   DType want) {
  if (type.dtype != want) {
    fail(ErrorCode::kInvalidArgument, "{}: {} is {}, wanted {}", op, operand, to_string(type),
         name(want));
  }
}

void require_float(std::string_view op, std::string_view operand, const ValueType& type) {
  if (!is_float(type.dtype)) {
    fail(ErrorCode::kInvalidArgument, "{}: {} is {}, wanted f32, f16 or bf16", op, operand,
         to_string(type));
  }
}

double live_elems(const ValueType& type, const Work& work) {
  double n = 1;
  for (int i = 0; i < type.shape.rank(); ++i) {
    n *= static_cast<double>(i == 0 ? work.extents.of(type.axis, type.shape[0]) : type.shape[i]);
  }
  return type.shape.rank() == 0 ? 0 : n;
}

double live_bytes(const ValueType& type, const Work& work) {
  const DTypeInfo& dtype = info(type.dtype);
  return live_elems(type, work) * dtype.block_bytes / dtype.block_elems;
}

Cost elementwise_cost(TypeList in, TypeList out, const Work& work, double flops_per_output) {
  Cost cost;
  for (const ValueType& type : in) cost.bytes += live_bytes(type, work);
  for (const ValueType& type : out) cost.bytes += live_bytes(type, work);
  cost.flops = flops_per_output * live_elems(out[0], work);
  return cost;
}

ShardRule replicate_all(size_t inputs, size_t outputs) {
  return {std::vector<Placement>(inputs), std::vector<Placement>(outputs)};
}

std::vector<float> load_row(const TensorView& view, int64_t r) {
  std::vector<float> row(view.cols());
  dequantize_row(view.dtype, view.row(r), row.data(), view.cols());
  return row;
}

void store_row(const TensorView& view, int64_t r, const std::vector<float>& row) {
  if (view.dtype != DType::f16) {
    return quantize_row(view.dtype, row.data(), view.row(r), view.cols());
  }
  constexpr float kMost = 65504;
  std::vector<float> values = row;
  for (float& v : values) v = std::clamp(v, -kMost, kMost);
  quantize_row(view.dtype, values.data(), view.row(r), view.cols());
}

}  // namespace braid::ops
